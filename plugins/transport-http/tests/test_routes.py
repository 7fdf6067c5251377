"""The route table against the registry."""

from __future__ import annotations

from collections import Counter

import pytest

from muniment.operations import OPERATIONS
from muniment_transport_http.routes import ROUTES, STREAM_PATH, Route, by_path

READ_BY_POST = {"memory.search"}
"""A query may be longer than a URL, and belongs into no log of URLs."""


def test_every_operation_has_one_route() -> None:
    """An operation that is added to the registry needs a route, and has no second one."""
    assert Counter(route.operation.name for route in ROUTES) == Counter(list(OPERATIONS))


def test_no_two_routes_are_one() -> None:
    """A method and a path name one operation; the stream is at none of theirs."""
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
    assert "GET" not in by_path().get(STREAM_PATH, {})


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation.name)
def test_methods_say_what_the_flags_say(route: Route) -> None:
    """What only reads is a GET, and what a client may repeat blindly is a PUT or a DELETE only if it is idempotent."""
    operation = route.operation

    assert (route.method == "GET") == (operation.read_only and operation.name not in READ_BY_POST)
    if route.method == "PUT":
        assert operation.idempotent or route.lowest_version is not None


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.operation.name)
def test_every_field_has_one_place(route: Route) -> None:
    """Each field of the input is in the path, the query or the body, and only fields are."""
    fields = route.operation.input.model_fields

    assert set(route.places) == set(fields)
    assert {field.partition(".")[0] for field in route.segments.values()} <= set(fields)
    assert len(route.at("path")) + len(route.at("query")) + len(route.at("body")) == len(fields)


def test_no_path_is_taken_for_another() -> None:
    """No path fits two templates, so that what a method is refused by does not depend on their order."""
    paths = list(by_path())
    for place, path in enumerate(paths):
        for later in paths[place + 1 :]:
            one, other = path.split("/"), later.split("/")
            fits = len(one) == len(other) and all(a == b or "{" in a + b for a, b in zip(one, other, strict=True))
            assert not fits, (path, later)
