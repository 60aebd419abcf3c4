"""Modules of the interpreter and the machine: what programs call of each.

In: nothing. Out: by module and name, texts of uses. Invariant: a text is a statement, or an
expression whose value is kept.
"""

from __future__ import annotations

from integration_tests.conformance.construct import caught

WARNED = (
    "with warnings.catch_warnings(record=True) as w:\n    warnings.simplefilter('always')\n    "
)
SYSTEM: dict[str, dict[str, tuple[str, ...]]] = {
    "datetime": {
        "date": ("datetime.date(2024, 1, n)", "datetime.date(2024, 1, 1).isoformat()",
            "datetime.date(2024, 3, 1) - "
                 "datetime.date(2024, 2, 1)", caught("datetime.date(2024, 99, 1)")),
        "datetime": ("datetime.datetime(2024, 1, n).year", "datetime.datetime(2024, 1, "
                                                           "1).strftime('%Y-%m')",
                     "datetime.datetime.strptime('2024', '%Y').year",
                     "datetime.datetime.fromisoformat('2024-01-02').day"),
        "timedelta": ("datetime.timedelta(seconds=n).total_seconds()",
            "datetime.timedelta(1) * n > datetime.timedelta(2)",
                      "str(datetime.timedelta(hours=n))"),
        "timezone": ("datetime.timezone.utc", "datetime.timezone(datetime.timedelta(hours=n))"),
        "datetime.now": ("datetime.datetime.now().year > 2000", "datetime.date.today().year > "
            "2000"),
    },
    "time": {
        name: (f"time.{name}() > 0", f"k = time.{name}()\nt = t + 1\nR.append(time.{name}() >= k)",
               f"k = time.{name}()\nt = t + 1\nLOG.append(time.{name}() - k >= 0)")
        for name in ("time", "perf_counter", "monotonic", "process_time", "time_ns",
        "perf_counter_ns",
                     "monotonic_ns", "thread_time")
    } | {
        "sleep": ("time.sleep(0)",), "strftime": ("len(time.strftime('%Y')) == 4",),
        "localtime": ("time.localtime().tm_year > 2000",), "gmtime": ("time.gmtime(0).tm_year",),
        "ctime": ("len(time.ctime()) > 5",), "mktime": ("time.mktime(time.gmtime(0)) < 1e6",),
    },
    "threading": {
        "local": ("k = threading.local()\nk.v = n\nR.append(k.v)", "mine.v = n\nR.append(mine.v)",
                  "getattr(mine, 'none', n)", "hasattr(mine, 'none')",
                  "mine.count = getattr(mine, 'count', 0) + 1\n"
                  "R.append(mine.count)", "mine.t = t\nt = mine.t + 1", caught("mine.none")),
        "Lock": ("with lock: t = t + 1", "with lock: LOG.append(n)", "with threading.Lock(): t = "
            "t + 1",
                 "lock.acquire()\ntry: t = t + 1\nfinally: lock.release()", "lock.locked()",
                 "R.append(lock.acquire(blocking=False))\nlock.release()",
                 "with lock: R.append(lock.locked())", "try:\n    with lock: raise Own\nexcept "
                                                       "Own: R.append(lock.locked())",
                 caught("threading.Lock().release()"),
                 "k = threading.Lock()\nR.append(k.locked())"),
        "RLock": ("with rlock: t = t + 1", "with rlock:\n    with rlock: t = t + 1",
            "with threading.RLock(): pass"),
        "Event": ("k = threading.Event()\nk.set()\nR.append(k.is_set())",),
        "Condition": ("with threading.Condition(): t = t + 1",),
        "Semaphore": ("with threading.Semaphore(1): t = t + 1",),
        "Thread": ("k = threading.Thread(target=lambda: LOG.append(n))\nk.start()\nk.join()",),
        "current_thread": ("threading.current_thread().name", "threading.current_thread() is "
            "threading.main_thread()"),
        "get_ident": ("threading.get_ident() == threading.get_ident()",), "active_count": (
            "threading.active_count() > 0",),
        "main_thread": ("threading.main_thread().name",),
    },
    "weakref": {
        "ref": ("weakref.ref(o)() is o", "k = weakref.ref(t)\nR.append(k() is t)",
            "k = Vec(t)\nr = weakref.ref(k)\nR.append(r() is k)",
                "r = weakref.ref(Vec(t))\nR.append(r() is None)", caught("weakref.ref(n)"),
                "held_ref().t.shape", "held_ref() is o"),
        "proxy": ("weakref.proxy(o).t", "held_proxy.t"), "WeakKeyDictionary": (
            "k = weakref.WeakKeyDictionary()\nk[o] = n\nR.append(k[o])",
                  "weak_keys.get(o)", "weak_keys[o] = n\nR.append(len(weak_keys))"),
        "WeakValueDictionary": ("k = weakref.WeakValueDictionary()\nk['a'] = o\nR.append(k['a'] "
                                "is o)", "weak_values['o'] is o"),
        "WeakSet": ("k = weakref.WeakSet()\nk.add(o)\nR.append(o in k)",), "finalize": (
            "k = weakref.finalize(o, print)\nR.append((k.alive, k.detach() is not None))",),
        "getweakrefcount": ("weakref.getweakrefcount(o) > 0",), "WeakMethod": (
            "weakref.WeakMethod(o.__len__)() is not None",),
        "ReferenceType": ("isinstance(held_ref, weakref.ReferenceType)",),
    },
    "warnings": {
        "warn": (WARNED + "warnings.warn('a')\nR.append([str(k.message) for k in w])",
                 WARNED + "warnings.warn(f'n {n}', UserWarning, stacklevel=2)\nR.append(len(w))",
                 "warnings.warn('seen')\nt = t + 1",
                 WARNED + "t = t + 1\n    warnings.warn(DeprecationWarning('d'))\n    t = t * 2"),
        "catch_warnings": ("with warnings.catch_warnings(): t = t + 1",
            "with warnings.catch_warnings():\n    "
                           "warnings.simplefilter('ignore')\n    t = t + 1"),
        "simplefilter": ("with warnings.catch_warnings():\n    warnings.simplefilter('error')\n  "
                         "  " +
                         caught("warnings.warn('w')").replace("\n", "\n    "),),
        "filterwarnings": ("with warnings.catch_warnings():\n    "
                           "warnings.filterwarnings('ignore', 'a')\n    warnings.warn('a')",),
        "warn_explicit": (WARNED + "warnings.warn_explicit('a', UserWarning, 'f', 1)",),
            "formatwarning": (
            "warnings.formatwarning('m', UserWarning, 'f', 1, 'l')",), "resetwarnings": (
            "with warnings.catch_warnings(): warnings.resetwarnings()",),
    },
    "pathlib": {
        "Path": ("pathlib.Path('a') / 'b'", "str(pathlib.Path('a', 'b'))",
            "pathlib.Path('a/b.txt').suffix", "pathlib.Path('/no').exists()",
                 "pathlib.Path('a').joinpath('b').name", "pathlib.Path('a/b').parent == "
                                                         "pathlib.Path('a')",
                                                         "[*pathlib.Path('/no/no').glob('*')]",
                 "pathlib.Path.cwd().is_dir()", "path / 'k'", "path.name", "path.is_file()",
                 "f'{path}'"),
        "PurePath": ("pathlib.PurePath('a/b').parts", "pathlib.PurePath('a.b').stem",
            "pathlib.PureWindowsPath('a').as_posix()"),
    },
    "io": {"StringIO": ("k = io.StringIO()\nk.write('a')\nR.append(k.getvalue())",
        "k = io.StringIO()\nprint(n, file=k)\nR.append(k.getvalue())",
                        "io.StringIO('a\\nb').readlines()"),
           "BytesIO": ("k = io.BytesIO()\nk.write(b'a')\nR.append(k.getvalue())",
               "k = io.BytesIO()\ntorch.save(n, k)\nk.seek(0)\nR.append(torch.load(k))"),
           "open": ("with io.open(os.devnull) as k: R.append(k.read())",)},
    "logging": {
        "getLogger": ("logging.getLogger('conformance').name", "logging.getLogger('conformance') "
            "is log", "logging.getLogger(__name__).level"),
        "Logger.debug": ("log.debug('a %s', n)", "log.debug(f'{t.shape}')"),
        "Logger.info": ("log.info('a')", "log.info('%d of %s', n, xs)"),
        "Logger.warning": ("log.warning('a %s', n)\nR.append(stream.getvalue())",
            "log.warning(f'{n}')", "t = t + 1\nlog.warning('m')\nt = t * 2",
                           "log.warning('%s', t.shape)", "if n > 5: log.warning(f'{t}')"),
        "Logger.error": ("log.error('a', extra={'k': 1})", "log.error('%s', Own('e'))"),
        "Logger.exception": ("try: 1 / 0\nexcept ZeroDivisionError: log.exception('e')",),
        "Logger.log": ("log.log(logging.WARNING, 'a')", "log.log(n, 'a')"),
        "Logger.isEnabledFor": ("log.isEnabledFor(logging.DEBUG)", "if log.isEnabledFor(10): "
            "print(t)"),
        "Logger.setLevel": ("log.setLevel(logging.WARNING)",
            "log.setLevel('ERROR')\nlog.warning('a')\nlog.setLevel('WARNING')"),
        "Logger.level": ("log.level", "log.getEffectiveLevel()", "log.parent.name",
            "log.handlers[0] is not None"),
        "warning": ("logging.warning('root') if n > 9 else None", "logging.info('root')",
            "logging.debug('root %s', n)"),
        "levels": ("logging.WARNING", "logging.getLevelName(30)"),
    },
    "traceback": {
        "format_exc": ("try: 1 / 0\nexcept ZeroDivisionError: "
                       "R.append(traceback.format_exc().splitlines()[-1])",),
        "format_exception": ("try: 1 / 0\nexcept ZeroDivisionError as e: "
                             "R.append(traceback.format_exception(e)[-1])",),
        "format_exception_only": ("traceback.format_exception_only(Own(n))",),
        "print_exc": ("try: 1 / 0\nexcept ZeroDivisionError: "
                      "traceback.print_exc(file=io.StringIO())",),
        "format_stack": ("len(traceback.format_stack()) > 0",), "extract_stack": (
            "traceback.extract_stack()[-1].name",),
        "extract_tb": ("try: 1 / 0\nexcept ZeroDivisionError as e: "
                       "R.append(len(traceback.extract_tb(e.__traceback__)))",),
        "TracebackException": ("try: 1 / 0\nexcept ZeroDivisionError as e: "
                               "R.append(str(traceback.TracebackException.from_exception(e)))",),
    },
    "os and sys": {
        "os.environ": ("os.environ.get('NO_SUCH')", "'NO_SUCH' in os.environ",
            "os.getenv('NO_SUCH', n)", caught("os.environ['NO_SUCH']"),
                       "os.environ['CONFORMANCE'] = '1'\nR.append(os.environ['CONFORMANCE'])"),
        "os.path": ("os.path.join('a', 'b')", "os.path.exists('/no')", "os.path.basename('a/b')",
            "os.path.splitext('a.b')", "os.path.isfile('/no')",
                    "os.path.abspath('/a/../b')", "os.path.dirname('a/b')",
                    "os.path.normpath('a//b')"),
        "os": ("os.getpid() == os.getpid()", "os.sep", "os.name", "os.cpu_count() > 0",
            "os.getcwd() == os.getcwd()", "os.urandom(2)[:0]"),
        "sys": ("sys.version_info >= (3, 8)", "sys.platform", "sys.maxsize",
            "sys.getrecursionlimit() > 9", "sys.byteorder", "'math' in sys.modules",
                "sys.modules['math'] is math", "sys.argv is sys.argv", "sys.getsizeof(1) > 0",
                "sys.getrefcount(xs) > 0", "sys.float_info.eps", "sys.exc_info()"),
        "sys.stdout": ("sys.stdout.write('a')", "print('a', file=sys.stdout)",
            "sys.stdout.flush()"),
        "sys._getframe": ("sys._getframe().f_code.co_name", "sys._getframe(0).f_lineno > 0"),
        "gc": ("gc.isenabled()", "gc.collect() >= 0"),
        "contextvars": ("variable.get()",
            "k = variable.set(n)\nR.append(variable.get())\nvariable.reset(k)",
                        "contextvars.ContextVar('k', default=n).get()",
                        "contextvars.copy_context().run(lambda: n)"),
        "pickle": ("pickle.loads(pickle.dumps(xs))", "pickle.loads(pickle.dumps({'a': n}))",
            "pickle.loads(pickle.dumps(t))"),
    },
}  # fmt: skip
