"""What does not come is named, with the object that shows why; the next `up` goes on from there."""

import pytest

from lab.nebius_api.faults import Fault

pytestmark = pytest.mark.slow
SOON = {"timeouts": {"available": 12, "login": 6}}


def test_each_wait_says_what_is_missing_and_the_next_up_goes_on(site):
    site.write(nebius=SOON)
    site.api.faults.append(Fault(kind="NodeGroup", verb="create", mode="refuse", what="quota_failure", name="worker*"))
    site.run("up", ok=False)
    assert "compute.instance.gpu.h100" in site.failure()

    site.behaviour.populate_fails = True
    site.run("up", ok=False)
    assert "Job soperator-populate-jail failed" in site.failure()
    assert "kubectl delete job soperator-populate-jail" in site.failure()

    site.behaviour.populate_fails = False
    site.kube.delete(site.kube.get("batch/v1", "Job", "soperator-populate-jail", "soperator"))
    site.behaviour.missing_pods = 1
    site.behaviour.unavailable, site.behaviour.no_address = "back-off restarting failed container", True
    site.run("up", ok=False)
    assert (
        "SlurmCluster soperator did not come within 12 s (nebius.timeouts.available): phase Not available"
        in site.failure()
    )
    assert "ControllersAvailable=False" in site.failure()
    assert "controller-0: " in site.failure()
    assert "CrashLoopBackOff" in site.failure()

    site.behaviour.unavailable = ""
    site.run("up", ok=False)
    assert "gpu has 1 of 2 pods" in site.failure()
    assert "the address of Service soperator-login-svc did not come within 6 s" in site.failure()
    assert "nebius.login.exposure: internal" in site.failure()

    site.behaviour.missing_pods, site.behaviour.no_address = 0, False
    site.write()
    site.run("up")
    assert site.run("preview") == {}
    site.run("destroy")
    assert site.owned() == []


def test_a_chart_that_does_not_exist_stops_before_anything_is_created(site):
    site.write(nebius={"soperator": {"version": "4.1.7", "charts": str(site.folder)}})
    site.run("up", ok=False)
    assert "there is no chart in the folder" in site.failure()
    assert site.owned() == []
    site.run("destroy")
