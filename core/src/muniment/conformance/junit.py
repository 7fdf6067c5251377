"""A report as JUnit XML, which CI systems show: one test case for each invariant.

What counts against conformance is a failure, or an error where the check did not come to a judgement. Skipped are what
is not declared, what is known to fail, what only should hold, and what was not run any more.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as Xml

from muniment.conformance.invariant import Outcome, family_of
from muniment.conformance.report import Report, Result

_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Report) -> str:
    """The report as the text of an XML document."""
    root = Xml.Element("testsuites", name="muniment conform")
    suite = Xml.SubElement(root, "testsuite", name=_legal(report.plugin))
    properties = Xml.SubElement(suite, "properties")
    for name, value in _facts(report).items():
        Xml.SubElement(properties, "property", name=_legal(name), value=_legal(value))
    for result in report.results:
        _judge(report, result, _case(suite, report, result.id, result.seconds))
    for name in report.not_run:
        Xml.SubElement(_case(suite, report, name, 0), "skipped", message=_legal(f"not run: {report.stopped()}"))
    for element in (root, suite):
        element.set("tests", str(len(suite.findall("testcase"))))
        for kind in ("failure", "error"):
            element.set(f"{kind}s", str(len(suite.findall(f"testcase/{kind}"))))
        element.set("skipped", str(len(suite.findall("testcase/skipped"))))
        element.set("time", f"{sum(result.seconds for result in report.results):.3f}")
    Xml.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _facts(report: Report) -> dict[str, str]:
    facts = {"verdict": report.last_line(), "backend": report.backend, "seed": str(report.seed)}
    facts |= {f"version of {name}": version for name, version in report.versions.items()}
    return facts | dict(report.configuration)


def _case(suite: Xml.Element, report: Report, invariant: str, seconds: float) -> Xml.Element:
    name = _legal(f"{report.plugin}.{family_of(invariant)}")
    return Xml.SubElement(suite, "testcase", classname=name, name=invariant, time=f"{seconds:.3f}")


def _judge(report: Report, result: Result, case: Xml.Element) -> None:
    if result.outcome is Outcome.PASS:
        return
    said = _legal(f"{result.outcome}: {result.detail}")
    if result.green:
        Xml.SubElement(case, "skipped", message=said)
        return
    kind = "error" if result.outcome is Outcome.ERROR else "failure"
    Xml.SubElement(case, kind, type=result.outcome, message=said).text = _legal(report.text_of(result))


def _legal(text: str) -> str:
    """The text without characters that XML cannot hold."""
    return _ILLEGAL.sub(lambda found: ascii(found[0])[1:-1], text)
