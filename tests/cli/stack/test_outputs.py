"""Outputs of a stack, with what its state has beside them."""

from cli.stack import outputs


def test_host_keys_are_those_of_the_machines_that_are_there():
    """An `up` that replaced machines and was cut off has exported nothing; what was replaced is on its way out."""
    values = {"machines": {"hc-a": {"host_key": "old"}, "hc-b": {"host_key": "same"}}}
    kind = "pulumi-python:dynamic/local:Machine"
    outputs.renew_host_keys(
        values,
        [
            {"type": kind, "outputs": {"name": "hc-a", "host_key": "new"}},
            {"type": kind, "outputs": {"name": "hc-a", "host_key": "old"}, "delete": True},
            {"type": kind, "outputs": {"name": "hc-c", "host_key": "other"}},
            {"type": "pulumi:pulumi:Stack", "outputs": {"name": "hc-b"}},
            {"type": kind},
        ],
    )
    assert values == {"machines": {"hc-a": {"host_key": "new"}, "hc-b": {"host_key": "same"}}}
    outputs.renew_host_keys({}, [{"type": kind, "outputs": {"name": "x", "host_key": "k"}}])
