"""One program, played as it is and compiled: what became of it, as a row of plain data.

In: a program, a device. Out: a row: verdict, differences, reasons, what was said.
Invariant: a verdict is one of VERDICTS; the worse one wins.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from integration_tests.campaign.judging import Difference, Judge
from integration_tests.campaign.observing import Setting, played
from integration_tests.campaign.program import Program

VERDICTS = ("crash", "hang", "differs", "fault", "refused", "raises", "same", "not drawn")
BAD = ("crash", "hang", "differs", "fault")
Row = dict[str, Any]


class BrokenByEager(Exception):
    """The program left the device in an error without being compiled."""


def row_of(
    program: Program,
    device: str = "cpu",
    options: Mapping[str, object] | None = None,
    eager_ended: Callable[[], None] = lambda: None,
) -> Row:
    """Play and judge. eager_ended: is called once the program has run as it is."""
    import flambeau  # seconds; and it may be wanted with other settings of the environment

    setting = Setting(device)
    started = time.perf_counter()
    row: Row = {"program": program.name, "backend": program.backend}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eager = played(program, lambda f: f, setting)
            _still_works(device)
        except BrokenByEager:
            raise
        except Exception as error:
            _still_works(device)
            return row | {"verdict": "not drawn", "text": f"{type(error).__name__}: {error}"[:300]}
        eager_ended()
        compiled: list[Any] = []

        def wrap(fn: Any) -> Any:
            more: dict[str, Any] = (
                {"options": dict(options)} if _takes_options(program, options) else {}
            )
            if program.sizes:
                more["sizes"] = eval(program.sizes, {"flambeau": flambeau})
            compiled.append(
                flambeau.compile(fn, backend=program.backend, dynamic=program.dynamic, **more)
            )
            return compiled[0]

        try:
            ours = played(program, wrap, setting)
        except Exception as error:  # around the calls all is plain Python, which ran before
            found = [
                Difference("outcome", "around the call", f"{type(error).__name__}: {error}"[:300])
            ]
        else:
            synchronized(device)
            try:
                found = Judge(program, setting).differences(eager, ours)
            except Exception:
                _still_works(device)  # judging runs nothing compiled
                raise
        report = flambeau.report(compiled[0]) if compiled else None
    faults, reasons = told(report, any(seen.error for seen in eager)) if report else ([], [])
    if found and found[0].kind == "outcome" and "compiled ConstraintViolation" in found[0].text:
        reasons.append(found[0].text)  # what the program has marked is not to be a constant
        found = []
    verdict = "same"
    if any(seen.error for seen in eager):
        verdict = "raises"
    if reasons:
        verdict = "refused"
    serious = [d for d in found if d.kind != "message"]
    if serious:
        verdict = "differs"
        found = serious
    if faults:  # what differs by it, as where it is raised, is the fault's
        verdict = "fault"
    row |= {"verdict": verdict, "seconds": round(time.perf_counter() - started, 3)}
    row |= {"raised": True} if any(seen.error for seen in eager) else {}
    if found:
        row |= {
            "kind": found[0].kind,
            "text": str(found[0]),
            "guilty": found[0].guilty,
            "all": [str(d) for d in found[:6]],
        }
    if faults:
        row["faults"] = faults
        row.setdefault("text", faults[0])
    if reasons:
        row["reasons"] = reasons
    return row


def _takes_options(program: Program, options: Mapping[str, object] | None) -> bool:
    return bool(options) and program.backend == "inductor"


def told(report: Any, raises: bool) -> tuple[list[str], list[str]]:
    """Faults inside, and refusals by name, of a report."""
    import flambeau_aot

    faults = [_brief(text) for text in report.internal_errors]
    reasons = [_brief(text) for text in (*report.breaks, *report.skipped)]
    named = (flambeau_aot.errors.Unsupported, flambeau_aot.errors.DataDependent)
    for failure in report.fallbacks:
        chain = [failure.error]
        while (error := chain[-1].__cause__) is not None and error not in chain:
            chain.append(error)
        text = f"{failure.stage}: {type(chain[-1]).__name__}: {chain[-1]}"
        refusal = any(isinstance(e, named) or type(e).__name__ in NAMED for e in chain)
        if refusal or raises:
            reasons.append(_brief(text))
        else:
            faults.append(_brief(text))
    return faults, reasons


#: classes of errors that say on purpose what is not done
NAMED = frozenset({"NotYetSymbolic", "Unsupported", "DataDependent", "NotForThisBackend"})


def _brief(text: object) -> str:
    lines = [line.strip() for line in str(text).strip().splitlines() if line.strip()]
    return re.sub(r"0x[0-9a-f]+", "0x", " / ".join(lines[:2]))[:240]


def cause(row: Row) -> str:
    """What rows of one cause have in common."""
    verdict = row["verdict"]
    if verdict in ("crash", "hang"):
        return f"{verdict}: {row.get('where', '')}"
    if verdict == "fault":
        text = re.sub(r"[vx]?\d+(\.\d+)?|'[^']*'|<[^>]*>", "_", row["faults"][0])
        return f"fault: {text[:110]}"
    guilty = row.get("guilty") or ""
    family = row["program"].partition(":")[0]
    if row["kind"] == "outcome":
        found = re.search(r"eager (\w+).*compiled (\w+)", row["text"])
        pair = f"{found[1]} for {found[2]}" if found else ""
        return f"differs: outcome {pair} ({family})"
    if guilty:
        return f"differs: {row['kind']}: {operation(guilty)}"
    return f"differs: {row['kind']} ({family})"


def operation(statement: str) -> str:
    """The name of what a statement calls last."""
    text = statement.partition(" = ")[2] or statement
    names = re.findall(r"([A-Za-z_][\w.]*)\(", text)
    plain = [n.rpartition(".")[2] for n in names if n not in ("make", "tuple", "list")]
    inner = (
        "clone",
        "tensor",
        "zeros",
        "zeros_like",
        "float",
        "size",
        "device",
        "make",
        "arranged",
    )
    kept = [n for n in plain if n not in inner]
    return (kept or plain or ["?"])[0]


def _still_works(device: str) -> None:
    """Kernels report later than they are called: what eager's assert is known before ours run."""
    try:
        synchronized(device)
    except Exception as error:
        raise BrokenByEager(f"{type(error).__name__}: {error}") from error


def synchronized(device: str) -> None:
    """Raises where the device was broken by what ran."""
    if device == "cuda":
        torch.cuda.synchronize()
