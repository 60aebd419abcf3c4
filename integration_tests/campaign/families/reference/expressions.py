"""Expressions and simple statements: displays, slices, operators, targets, formatting.

In: nothing. Out: chapters of forms. Invariant: each use stands alone; operands are constants,
arguments of the call, and tensors.
"""

from __future__ import annotations

from integration_tests.campaign.families.reference.grammar import Form

_ANY = (
    "$<n;;xs;;t;;'ab';;1.5;;True;;None;;(1, n);;{'a': n};;{1, n};;2j;;b'a';;[];;'';;0;;-7;;"
    "2 ** 65;;range(n);;float('nan');;frozenset({1});;t.shape;;slice(n);;...;;Own;;len>$"
)
_INT = "$<n;;-n;;0;;1;;2;;-1;;True;;None;;9;;-9;;len(xs)>$"
_SEQ = (
    "$<xs;;'abcd';;(1, n, 3);;range(5);;b'abc';;t;;[t, u];;collections.deque(xs);;bytearray(b'ab')"
    ">$"
)
_SPEC = (
    "$<;;<;;>;;^;;*^;;=;;0=>$$<;;+;;-;; >$$<;;#>$$<;;0>$$<;;5;;12;;{n}>$$<;;,;;_>$$<;;.2;;.0>$"
    "$<;;b;;c;;d;;e;;E;;f;;g;;G;;n;;o;;s;;x;;X;;%>$"
)

CHAPTERS: dict[str, tuple[Form, ...]] = {
    "6 operators": (
        Form("", (
            f"{_ANY} $<+;;-;;*;;/;;//;;%;;@;;&;;|;;^>$ {_ANY}",
            "$<n;;2;;-2;;1.5;;t;;True;;0>$ ** $<n;;2;;-1;;0.5;;t;;0>$",
            "$<n;;1;;-1;;True;;t.long()>$ $<<<;;>>>$ $<n;;1;;0;;-1;;2.0>$",
            f"$<-;;+;;~;;not >$({_ANY})", f"{_ANY} $<==;;!=;;<;;<=;;>;;>=;;is;;is not>$ {_ANY}",
            f"{_ANY} $<in;;not in>$ {_ANY}", f"{_ANY} $<and;;or>$ {_ANY}",
            f"1 $<<;;==;;!=;;<=>$ n $<<;;>;;in;;is>$ {_ANY}", f"{_ANY} if {_ANY} else {_ANY}",
            f"divmod({_ANY}, {_ANY})", f"pow({_INT}, {_INT}, {_INT})", f"abs({_ANY})",
            "round($<n;;1.5;;2.5;;-0.5;;1234.567;;t>$$<;;, 1;;, -1;;, n;;, None>$)",
            f"k = {_ANY}\nk $<+;;-;;*;;/;;//;;%;;@;;&;;|;;^>$= {_ANY}\nR.append(k)",
            f"operator.$<add;;sub;;mul;;truediv;;floordiv;;mod;;and_;;or_;;xor;;eq;;lt;;contains;;"
            f"concat;;getitem;;iadd;;imul;;ior;;countOf;;indexOf;;is_;;matmul>$({_ANY}, {_ANY})",
            f"operator.$<neg;;pos;;inv;;not_;;truth;;index;;abs;;length_hint>$({_ANY})",
            "(k := n + 1) * k", "[k := 1, k + 1, k]", "(lambda: (k := n))()",
            f"bool({_ANY})", f"int({_ANY})", f"float({_ANY})", f"str({_ANY})", f"repr({_ANY})",
            f"list({_ANY})", f"tuple({_ANY})", f"sorted({_ANY})", f"len({_ANY})", f"sum({_ANY})",
            f"$<min;;max>$({_ANY})", f"$<min;;max>$({_ANY}, {_ANY}, key=$<None;;str;;len;;type>$)",
            f"$<any;;all>$({_ANY})", f"hash({_ANY}) * 0", f"isinstance({_ANY}, $<int;;(str, "
            "float);;"
            "int | None;;collections.abc.Sized;;numbers.Number;;torch.Tensor;;list[int];;3>$)",
            f"type({_ANY}).__name__", f"callable({_ANY})", f"complex({_ANY})", f"set({_ANY})",
            f"dict({_ANY})", f"enumerate({_ANY}).__class__", f"[*zip({_ANY}, {_ANY}, strict=True)]",
            f"[*map($<str;;bool;;type;;lambda k: k>$, {_ANY})]", f"[*filter(None, {_ANY})]",
            f"[*reversed({_ANY})]", f"iter({_ANY}).__class__.__name__", f"getattr({_ANY}, "
            "'$<real;;shape;;index;;__len__;;nothing;;__doc__;;imag>$', 'd').__class__.__name__",
        )),
    ),
    "6.3 subscriptions and slices": (
        Form("", (
            f"{_SEQ}[{_INT}]", f"{_SEQ}[{_INT}:{_INT}]", f"{_SEQ}[{_INT}:{_INT}:{_INT}]",
            f"{_SEQ}[::{_INT}]", f"s = slice({_INT}, {_INT}, {_INT})\nR.append($<xs;;t;;"
            "'abcd'>$[s])",
            f"slice({_INT}, {_INT}, {_INT}).indices($<n;;5;;0;;-1>$)",
            f"ys = [*xs]\nys[{_INT}:{_INT}] = $<[7];;[];;'ab';;range(n);;n;;t>$\nR.append(ys)",
            "ys = [*xs, 4, 5]\nys[::$<2;;-1;;-2;;n>$] = $<[7];;[7, 8, 9];;'abc'>$\nR.append(ys)",
            f"ys = [*xs]\ndel ys[{_INT}$<;;:;;::2>$]\nR.append(ys)",
            f"ys = [*xs]\nys[{_INT}] $<+;;*;;->$= $<n;;t>$\nR.append(ys)",
            f"v = t.clone()\nv[{_INT}:{_INT}] = n\nR.append(v)", f"t[{_INT}, None]", "t[t > n]",
            f"t[..., {_INT}]", "t[[0, n % 2]]", "t[torch.tensor([0, 1])]", "t[True]", "t[()]",
            "slice(1, n) == slice(1, n)", "slice(1, n).start", "hash(slice(1))", "xs['a']", "n[0]",
            "{'a': 1}['b']", "{(1, n): t}[1, n]", "{}.get(n, t)", "[[1, n], [t]][0][-1]",
            "range(10)[n:8:2]", "range(10)[-1]", "'abc'[n % 3]", "range(n)[5]",
        )),
    ),
    "7.2 assignments": (
        Form("", (
            "a, b = xs[:2]\nR.append((b, a))", "a, *b = xs\nR.append(b)", "*a, b = "
            "'xyz'\nR.append(a)",
            "(a, [b, *c], d) = 1, xs, t\nR.append((c, d))", "a, b = xs", "a, b = n", "a, *b, c "
            "= 'a'",
            "a = b = []\na.append(n)\nR.append(b)", "a, a = 1, 2\nR.append(a)",
            "i = 0\ni, xs[i] = 1, 9\nR.append(xs)", "xs[0], xs[1] = xs[1], xs[0]\nR.append(xs)",
            "a, b, *c = t\nR.append(c)", "[a, b] = {'p': 1, 'q': 2}\nR.append(a)",
            "for a, (b, *c) in [(1, (2, 3)), (4, 'xy')]: R.append((a, b, c))",
            "for xs[0] in range(n): pass\nR.append(xs)", "a = *xs, n\nR.append(a)",
            "[*xs, *'ab', *{1: 2}]", "{*xs, n}", "{**{'a': 1}, 'a': n, **{'b': t}}", "(*xs,)",
            "a: int = n\nR.append(a)", "a: undefined_name = 3\nR.append(a)",
            "d = {}\nd['k']: int = n\nR.append(d)", "with open('/nonexistent') as d: pass",
            "k = (1, [2])\ntry: k[1] += [3]\nfinally: R.append(k)", "a = [1]\nb = a\nb += [n]\n"
            "R.append(a)", "a = 'x'\nb = a\nb += 'y'\nR.append((a, b))", "a = t\na += "
            "1\nR.append(a is t)",
            "assert n", "assert n > 99, f'{n} is small'", "assert (n, 'x')", "assert not xs, "
            "t.shape",
            "del xs[0], xs[-1]\nR.append(xs)", "a = b = t\ndel (a, [b])\nR.append(a)",
            "t[0] = n\nR.append(t)", "t[0], t[1] = t[1], t[0]\nR.append(t)", "a, = xs", "(a) = 3",
            "{k: v for k, v in zip('ab', xs)}", "{k % 2 for k in xs}", "[[i * j for j in xs] "
            "for i in "
            "xs if i > 1]", "[i for i in range(9) if i % 2 if i > n]", "[t * i for i in xs]",
            "{i: [j for j in range(i)] for i in xs}", "[(yy := i) for i in xs] + [yy]",
            "[f() for f in [lambda: i for i in xs]]", "[i for i, in [(1,), (n,)]]",
        )),
    ),
    "2.4.3 formatted strings": (
        Form("", (
            f"f'{{$<n;;-n;;1.5;;n / 7;;10 ** 9;;True>$:{_SPEC}}}'", "f'{n=}'", "f'{n = :>5}'",
            "f'{$<\"ab\";;xs;;None;;t.shape;;t.dtype>$!$<r;;s;;a>$:$<;;>12;;^9;;.2;;*<8;;d>$}'",
            "f'{xs[0]:{n}}|{xs!r:>{n * 6}}'", "f'{{{n}}}' f'a{{}}'", "f'''{\n n}'''",
            "f'{n!r:^{n}.{n}}'",
            f"'{{:{_SPEC}}}'.format($<n;;1.5;;'ab'>$, n=5)", "'{0}{1}{0}'.format(n, 'x')",
            "'{a.real}{b[0]}{b[1]!r}'.format(a=n, b=xs)", "'{}{0}'.format(1)", "'{q}'.format()",
            "'{:{w}}'.format(n, w=6)", "'$<%d;;%5.1f;;%-4s|;;%r;;%x;;%+d;;%%;;%c;;%e;;%g;;%i;;"
            "%05d>$' "
            "% $<n;;(n,);;1.5;;'s';;xs;;(1, 2);;{'a': 1}>$", "'%(a)s-%(b)05d' % {'a': xs, 'b': n}",
            "'%*d|%.*f' % (5, n, 2, 1.234)", f"format($<n;;1.5;;'ab';;xs;;2j>$, '{_SPEC}')",
            "string.Template('$a-${b}').substitute(a=n, b=xs)",
            "string.Formatter().format('{0:>4}', n)",
            "string.Template('$a $z').safe_substitute(a=n)",
            "'{:%Y}'.format(datetime.date(2020, 1, n))",
            "f'{datetime.date(2020, n, 1):%d.%m}'", "f'{decimal.Decimal(n) / 7:.3f}'",
            "f'{t.shape[0]:03d}'",
            "f'{len(xs)} {t.dim()} {n:b}'", "len(f'{t}') > 0", "f'{t.sum().item():.1f}'",
            "f'{t[0]:.1f}'",
        )),
    ),
}  # fmt: skip
