"""Values that the library documents: texts, numbers, collections, iterators, dates, formats.

In: nothing. Out: chapters of forms. Invariant: each use stands alone, with arguments of the call
among constants.
"""

from __future__ import annotations

from integration_tests.campaign.families.reference.grammar import Form

_TEXT = "$<'Ab cd';;'';;'a,b,,c';;str(n);;' x ';;'ß';;'aXbX';;'x' * n;;'12'>$"
_ITER = "$<xs;;'abc';;range(n);;[t, u];;[];;iter(xs);;(j for j in xs);;{'a': 1, 'b': 2};;count>$"

CHAPTERS: dict[str, tuple[Form, ...]] = {
    "text": (
        Form("", (
            f"{_TEXT}.$<upper;;lower;;title;;swapcase;;capitalize;;casefold;;strip;;isdigit;;"
            "isalpha;;split;;"
            "splitlines;;isspace;;isidentifier;;istitle;;isupper;;encode;;isascii;;isnumeric>$()",
            f"{_TEXT}.$<split;;rsplit;;partition;;rpartition;;find;;rfind;;index;;count;;"
            "startswith;;endswith;;"
            "strip;;lstrip;;removeprefix;;removesuffix;;join>$($<',';;'X';;'a';;'';;'b';;' '>$)",
            f"{_TEXT}.$<center;;ljust;;rjust;;zfill>$($<n;;8>$)", f"{_TEXT}.replace('a', 'zz'$<;"
            ";, 1;;, n>$)",
            f"{_TEXT}.translate(str.maketrans('ab', 'xy'$<;;, 'c'>$))", "','.join(map(str, xs))",
            "'a\\tb'.expandtabs(n)",
            f"[ord(c) for c in {_TEXT}]", "chr(n + 96)", "'abc' * n", "'é'.encode($<'utf-8';;"
            "'latin-1';;'ascii'>$)",
            "b'ab'.$<hex;;decode;;upper;;split;;isalpha>$()", "bytes($<n;;xs;;b'a';;'é'>$)",
            "bytearray(xs)[0]",
            "b = bytearray(b'abc')\nb[0] = 65\nb += b'!'\nR.append(b)", "memoryview(b'abc')[1]",
            "bytes.fromhex('0aff')",
            "re.$<match;;search;;fullmatch;;findall;;split>$('$<a;;(b)(c?);;[A-Z]+;;\\\\\\\\d+;"
            f";,;;(?P<k>x)>$', {_TEXT})",
            f"re.sub('a', $<'z';;lambda m: m[0] * 2>$, {_TEXT})", "re.match('(?P<k>a)(b)?', "
            "'ab').groupdict()",
            "re.compile('a(b)').sub(r'\\1', 'abab')", "[m.span() for m in re.finditer('a', "
            "'aba')]", "re.escape('a.b')",
            "re.match('(a)', 'abc').group(n)", "textwrap.dedent('  a\\n  b')",
            "textwrap.wrap('a bb ccc', n + 2)",
            "string.capwords('a bc')", "string.ascii_lowercase[n]", "textwrap.shorten('a b c "
            "d', 5)", "re.compile('a(').x",
        )),
    ),
    "numbers": (
        Form("", (
            "(n).$<bit_length;;bit_count;;as_integer_ratio;;conjugate;;__index__>$()",
            "(n / 8).$<hex;;is_integer;;"
            "as_integer_ratio>$()", "int($<'12';;'0x1f', 16;;'z', 36;;3.9;;'1_0';;' 7 ';;b'5';;"
            "'x'>$)", "(n).to_bytes(2, "
            "'$<big;;little>$')", "int.from_bytes(b'ab', 'big'$<;;, signed=True>$)",
            "float($<'nan';;'inf';;'1e3';;'x';;n>$)",
            "math.$<sqrt;;floor;;ceil;;trunc;;exp;;log;;sin;;factorial;;isqrt;;gamma;;fabs;;"
            "degrees;;isnan;;log2;;cbrt>$"
            "($<n;;1.5;;0;;-1;;100;;True>$)", "math.$<gcd;;lcm;;pow;;fmod;;hypot;;atan2;;comb;;"
            "perm;;copysign;;ldexp;;isclose;;"
            "remainder;;dist>$($<n;;6;;-4>$, $<n;;2;;0>$)", "math.$<prod;;fsum>$(xs)",
            "math.$<frexp;;modf>$(n / 3)", "math.inf > n",
            "fractions.Fraction(n, 6)", "fractions.Fraction(n, 6) + fractions.Fraction(1, 3)",
            "fractions.Fraction('0.25') * n",
            "float(fractions.Fraction(n, 7))", "fractions.Fraction(1, 0)",
            "fractions.Fraction(0.3).limit_denominator(9)",
            "decimal.Decimal('1.10') + n", "decimal.Decimal(n) / 3",
            "decimal.Decimal('2.675').quantize(decimal.Decimal('.01'))",
            "decimal.Decimal(1) / 0", "with decimal.localcontext() as c:\n    c.prec = 4\n    "
            "R.append(decimal.Decimal(1) / 7)",
            "statistics.$<mean;;median;;mode;;stdev;;variance;;fmean;;pstdev;;multimode;;"
            "median_low;;harmonic_mean>$($<xs;;[1.5, n];;"
            "[];;[1, 1, 2]>$)", "complex(n, 1).$<real;;imag;;conjugate()>$", "abs(3 + 4j)",
            "isinstance(n, numbers.$<Integral;;"
            "Real;;Complex;;Rational>$)", "sum(xs) / len(xs)", "round(n / 3, 2)", "n // -2, n % "
            "-2", "-7 // 2 * n", "0.1 + 0.2 == 0.3",
            "hash(1) == hash(1.0)", "t * fractions.Fraction(1, 2)",
            "t * float(decimal.Decimal('0.5'))", "t + math.pi", "bin(n)",
            "struct.pack('$<<;;>;;>$$<i;;hb;;f;;2s;;q;;?>$', $<n;;n, 1;;1.5;;b'ab'>$)",
            "struct.unpack('<2h', b'abcd')",
            "struct.calcsize('iq')", "oct(n)", "divmod(-n, 2)", "10 ** -n", "2 ** 100 % n",
            "~n & 0xff", "float.fromhex('0x1p-2')",
        )),
    ),
    "collections": (
        Form(
            "c = $<collections.Counter('aab');;collections.OrderedDict(a=1, b=n);;"
            "collections.defaultdict(list, a=[n]);;"
            "collections.ChainMap({'a': n}, {'b': 2});;{'a': 1, 'b': t};;"
            "collections.UserDict(a=n, b=1);;dict(a=1)>$\n"
            "q = collections.deque(xs$<;;, maxlen=2;;, 3>$)\n"
            "class D(dict):\n    def __missing__(self, k): return $<k;;t;;self.setdefault(k, "
            "[])>$\n"
            "class L(collections.UserList):\n    def __getitem__(self, i): return ('got', "
            "self.data[i])\n"
            "class K(collections.UserDict):\n    def __setitem__(self, k, v): "
            "super().__setitem__(k.upper(), v)",
            ("c['a']", "c['zz']", "c['zz'] = t\nR.append(len(c))", "[*c]", "[*c.items()]",
            "c.get('b')", "c.pop('a')", "c.pop('zz', 3)",
             "c.setdefault('n', n)", "c.update(z=1)\nR.append([*c])",
             "del c['a']\nR.append([*c])", "len(c)", "'a' in c", "repr(c)",
             "c == c.copy()", "c.popitem()", "c | {'w': 1}", "c |= {'v': 2}\nR.append([*c])",
             "c.clear()\nR.append(c)", "{**c}",
             "[*reversed(c)]", "c.$<most_common(1);;total();;elements();;subtract('a');;"
             "move_to_end('a');;new_child();;maps;;parents;;"
             "default_factory>$", "c + c", "c - c", "type(c).fromkeys('ab', n)", "c['a'] += "
             "1\nR.append(c['a'])", "c.keys() & {'a'}",
             "c.keys() - {'a'}", "sorted(c.items(), key=str)", "max(c, key=c.get)",
             "q.append(n)\nR.append(q)", "q.appendleft(t)\nR.append(q)",
             "q.rotate(n)\nR.append(q)", "q.pop()", "q.popleft()", "q[0]", "q[-1] = "
             "9\nR.append(q)", "q.extend('ab')\nR.append([*q])",
             "q.$<maxlen;;count(1);;index(2);;reverse();;copy();;clear();;remove(1);;insert(0, "
             "7)>$", "q + q", "len(q)", "[*reversed(q)]",
             "q == collections.deque(xs)", "D()['k']", "D(a=1).get('k')",
             "d = D()\nd['k']\nR.append(d)", "L([1, n])[0]", "[*L(xs)]",
             "L(xs) + [1]", "k = K()\nk['a'] = t\nR.append([*k])", "K(a=1)", "for k in q: "
             "q.append(1)", "for k in c: c[k + 'x'] = 1",
             "collections.Counter(xs) & collections.Counter([1])", "+collections.Counter(a=-1, "
             "b=2)", "collections.Counter(a=1) <= c",
             "xs.$<sort();;reverse();;pop();;pop(0);;append(t);;extend('ab');;insert(1, n);;"
             "remove(2);;clear();;copy();;index(2);;count(1)>$",
             "s = {1, n}\ns.$<add(5);;discard(1);;remove(9);;pop();;update('a');;"
             "clear()>$\nR.append(s)", "{1, n} $<|;;&;;-;;^;;<;;>=>$ {n}",
             "{1, 2}.$<union;;intersection;;difference;;symmetric_difference;;issubset;;"
             "isdisjoint>$(xs)", "frozenset(xs) | {n}",
             "dict.fromkeys(xs, t)", "dict([('a', 1)], b=n)",
             "heapq.heapify(xs)\nheapq.heappush(xs, 0)\nR.append(heapq.heappop(xs))",
             "heapq.$<nlargest;;nsmallest>$(2, xs)", "bisect.$<bisect;;bisect_left;;"
             "insort>$(xs, n)", "heapq.merge(xs, [n]).__next__()"),
        ),
    ),
    "itertools": (
        Form("count = itertools.count(n)", (
            f"[*itertools.islice(itertools.chain({_ITER}, {_ITER}), 4)]",
            "[*itertools.islice(itertools.count(n, 2), 3)]",
            "[*itertools.islice(itertools.cycle(xs), 5)]", "[*itertools.repeat(t, n)]",
            "[*itertools.accumulate(xs$<;;, operator.mul;;, "
            "initial=n>$)]", "[*itertools.$<permutations;;combinations;;"
            "combinations_with_replacement>$(xs, 2)]",
            "[*itertools.product(xs, 'ab'$<;;, repeat=1>$)][:3]", "[*itertools.$<takewhile;;"
            "dropwhile;;filterfalse>$(lambda k: k < n, xs)]",
            "[(k, [*g]) for k, g in itertools.groupby(xs, key=lambda k: k % 2)]",
            "[*itertools.zip_longest(xs, 'ab', fillvalue=n)]",
            "[*itertools.starmap(pow, [(n, 2), (2, 3)])]", "[*itertools.compress(xs, [1, 0, n])]",
            "[*itertools.pairwise(xs)]",
            "a, b = itertools.tee(xs)\nR.append((next(a), [*b]))",
            f"[*itertools.islice({_ITER}, $<2;;0, None, 2;;1, n;;-1>$)]",
            "[*itertools.chain.from_iterable([xs, 'a'])]", "next(count)",
            "next(itertools.islice(count, 2, None))", f"[*zip({_ITER}, xs)][:3]",
            f"[*enumerate({_ITER}, n)][:2]", f"next(iter({_ITER}), 'd')",
            "it = iter(xs)\nnext(it)\nR.append([*it])", "it = iter(xs)\n"
            "R.append([*zip(it, it)])", "it = iter([1, 2])\nxs2 = [*it, *it]\nR.append(xs2)",
            "iter(lambda: next(count), n + 4).__next__()",
            "[*iter(xs.pop, 1)]", "it = iter(xs)\nxs.append(4)\nR.append([*it])",
            "operator.length_hint(iter(xs))", "it = reversed(xs)\n"
            "R.append((next(it), [*it]))", "copy.copy(iter(xs)).__next__()",
            "sum(itertools.starmap(operator.mul, zip(xs, xs)))",
            "it = map(str, xs)\nR.append(next(it))\nR.append([*it])", "it = filter(None, [0, "
            "n])\nR.append([*it])", "torch.stack([*itertools.repeat(t, 2)])",
            "operator.$<itemgetter(0, 1)(xs);;attrgetter('shape', 'dtype')(t);;"
            "methodcaller('sum')(t);;itemgetter(slice(1))(xs)>$",
        )),
    ),
    "dates and formats": (
        Form("d = datetime.date(2024, n, 28)\ndt = datetime.datetime(2024, 1, n, 5, "
            "tzinfo=$<None;;datetime.timezone.utc>$)", (
            "d + datetime.timedelta(days=n)", "(d - datetime.date(2024, 1, 1)).days",
            "d.isoformat()", "d.weekday()", "dt.strftime('%H:%M')",
            "dt.replace(hour=n)", "datetime.datetime.fromisoformat('2024-01-02').day",
            "datetime.datetime.strptime('05', '%d').day", "d < d",
            "datetime.timedelta(hours=n).total_seconds()", "datetime.timedelta(1) / n",
            "dt.date() == d", "d.timetuple().tm_yday", "repr(d)",
            "datetime.date(2024, 13, 1)", "str(dt)", "datetime.time(n).isoformat()",
            "t * datetime.timedelta(seconds=2).seconds", "d.toordinal()",
            "json.dumps({'a': [1, n, None, True], 'b': 'é'}$<;;, indent=1;;, sort_keys=True;;, "
            "ensure_ascii=False>$)", "json.loads('[1, {\"a\": null}]')",
            "json.dumps(t)", "json.dumps(n, default=str)", "json.loads('{')",
            "json.loads('1.5', parse_float=str)", "json.dumps(object())",
            "json.loads(json.dumps(xs)) == xs", "json.dumps(t.tolist())", "json.dumps({1: 2, "
            "None: 3})", "json.dumps(xs, separators=(',', ':'))",
            "json.dumps(datetime.date(2020, 1, 1), default=lambda o: o.isoformat())",
            "json.JSONEncoder().encode(xs)", "copy.copy(d) == d", "hash(d) * 0",
        )),
    ),
}  # fmt: skip
