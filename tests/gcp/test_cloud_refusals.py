"""Questions to Google Cloud that have no answer: refusals, silence, a login that has expired."""

import re
import socket
import threading

import pytest
from google.auth.exceptions import RefreshError
from google.oauth2.credentials import Credentials

from cluster.cloud_checks import CloudCheck, CloudOutcome
from cluster.config import ClusterConfig
from cluster.platforms.gcp.cloud_checks import AskedStack, checks
from components import cloud_questions
from components.cloud_questions import rows as cloud_rows
from components.gcp import cloud_checks
from components.gcp.bake_design import GoogleCloudError
from tests.clouds import A3, google
from tests.gcp.test_cloud_checks import (
    BILLING,
    SERVICES,
    STATE,
    TYPES,
    asking,
    everything,
    healthy_for_everything,
    row,
    wrong,
)
from tests.lab.google.apis import (
    ACCOUNT,
    Answer,
    Asked,
    GoogleApis,
    Rule,
    on,
    refusal,
)
from tests.lab.google.discovery import METHODS
from tests.lab.public_files import served_at
from tests.waiting import Meeting


class TestRefusals:
    """A question that is not answered is no failure, names its reason, and hides no other row."""

    @pytest.mark.parametrize(
        "method", [name for row in METHODS.values() for name in row if not name.endswith(("ions", "skus.list"))]
    )
    def test_each_permission_that_a_question_takes(self, apis: GoogleApis, method: str) -> None:
        apis.rules[:0] = [on(method, refusal(403, "The caller does not have permission")), healthy_for_everything]
        rows = cloud_checks.check(asking(method), state=STATE)
        hidden = [row for row in wrong(rows) if row.id != "marketplace"]
        assert {row.outcome for row in hidden} == {CloudOutcome.NOT_ASKED}
        assert len({row.id for row in hidden}) == 1
        expected = {
            SERVICES: "serviceusage.services.get",
            BILLING: "resourcemanager.projects.get",
            "compute.regionDisks.list": "compute.disks.list",
            "cloudbilling.billingAccounts.get": "billing.accounts.get",
            "file.projects.locations.get": "lustre.locations.get",
            "file.projects.locations.instances.list": "lustre.instances.list",
            "orgpolicy.projects.policies.getEffectivePolicy": "orgpolicy.policy.get",
            "iam.projects.serviceAccounts.list": "iam.serviceAccounts.list",
            "serviceusage.services.consumerQuotaMetrics.get": "serviceusage.quotas.get",
            "serviceusage.services.consumerQuotaMetrics.list": "serviceusage.quotas.get",
            "secretmanager.projects.secrets.list": "secretmanager.secrets.list",
        }
        assert {row.seen for row in hidden} == {f"you lack the permission {expected.get(method, method)}"}
        assert {row.assumptions for row in hidden} == {()}
        roles_of = {
            "cloudbilling.billingAccounts.get": ("billing.viewer", ACCOUNT),
            "storage.buckets.get": ("storage.bucketViewer", "our-state"),
        }
        role, where = roles_of.get(method, ("viewer", r"\S+"))
        assert all(re.search(rf", such as roles/{role}, on {where}$", row.todo) for row in hidden)

    @pytest.mark.parametrize(
        ("answer", "seen", "todo"),
        [
            (
                refusal(403, "disabled", reason="SERVICE_DISABLED", consumer="projects/my-project", service="x"),
                "the service cloudbilling.googleapis.com is not enabled in my-project",
                "gcloud services enable cloudbilling.googleapis.com --project my-project",
            ),
            (
                refusal(403, "denied", reason="USER_PROJECT_DENIED", consumer="projects/other"),
                "your credential's quota project other does not let you use it",
                "gcloud auth application-default set-quota-project my-project",
            ),
            (
                refusal(
                    403,
                    "Request is prohibited by organization's policy.",
                    reason="SECURITY_POLICY_VIOLATED",
                    uid="VQQnKfXt",
                    consumer="projects/my-project",
                ),
                "a perimeter of VPC Service Controls refuses you (VQQnKfXt)",
                "run it from inside the perimeter, or ask its administrators for access, with the id VQQnKfXt",
            ),
            (refusal(400, "bad\nrequest"), "Google answers 400: bad request", "run it again later"),
            ((502, b"<html>"), "Google answers 502: Bad Gateway", "run it again later"),
            ((200, b"<html>"), "the answer is not Google's JSON", "check the proxy: HTTPS_PROXY and NO_PROXY"),
            ((200, b"[1]"), "the answer is not Google's JSON", "check the proxy: HTTPS_PROXY and NO_PROXY"),
        ],
    )
    def test_reasons_in_words(self, apis: GoogleApis, answer: Answer, seen: str, todo: str) -> None:
        apis.rules.insert(0, on(BILLING, answer))
        (hidden,) = wrong(cloud_checks.check(google()))
        assert (hidden.id, hidden.outcome, hidden.seen) == ("billing", CloudOutcome.NOT_ASKED, seen)
        assert hidden.todo.startswith(todo)

    @pytest.mark.parametrize("status", [429, 503])
    def test_an_answer_that_passes_is_asked_for_again(self, apis: GoogleApis, status: int) -> None:
        apis.rules.insert(0, _times(2, on(BILLING, refusal(status, "later"))))
        assert wrong(cloud_checks.check(google())) == []
        assert sum(asked.id == BILLING for asked in apis.asked) == 3

    def test_one_that_does_not_pass_is_given_up(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, on(BILLING, refusal(503, "The service is currently unavailable.")))
        (hidden,) = wrong(cloud_checks.check(google()))
        assert hidden.seen == "Google answers 503: The service is currently unavailable."
        assert sum(asked.id == BILLING for asked in apis.asked) == 4

    def test_an_answer_of_another_form(self, apis: GoogleApis) -> None:
        apis.rules.insert(0, on(TYPES, (200, {})))
        hidden = wrong(cloud_checks.check(google()))
        assert {row.outcome for row in hidden} == {CloudOutcome.NOT_ASKED}
        text = CloudCheck(id="x", asks="x", requests=("x",), read=lambda answer: answer.get("x"))
        (row,) = cloud_rows([text], lambda _: "text", 1.0, "Google")
        assert "another form than documented (AttributeError: " in row.seen
        assert "another form than documented (KeyError: 'guestCpus')" in hidden[0].seen

    def test_nothing_listens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            closed = f"http://127.0.0.1:{bound.getsockname()[1]}/{{}}"
            monkeypatch.setattr(cloud_checks, "GOOGLE", closed)
            served_at(closed, monkeypatch)
            monkeypatch.setattr(cloud_questions, "PAUSES", ())
            rows = cloud_checks.check(google())
        assert {row.outcome for row in rows} == {CloudOutcome.NOT_ASKED}
        assert rows[0].seen == "serviceusage.googleapis.com does not answer (ConnectionError)"

    def test_an_answer_that_does_not_come_in_time(self, apis: GoogleApis, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cloud_checks, "SECONDS", 2.0)
        asked = threading.Event()

        def blocked(asks: Asked) -> Answer | None:
            if asks.id == BILLING:
                asked.wait(60)
            return None

        apis.rules.insert(0, blocked)
        hidden = row(cloud_checks.check(google()), "billing")
        assert not asked.is_set()
        asked.set()
        assert hidden.outcome is CloudOutcome.NOT_ASKED
        assert hidden.todo == "check the network and the proxy, then run again"


TOGETHER = 8
"""Questions that are under way at once, of many more."""


def _times(count: int, rule: Rule) -> Rule:
    """The rule for its first `count` answers."""
    left = [None] * count

    def limited(asked: Asked) -> Answer | None:
        return rule(asked) if rule(asked) and left and left.pop() is None else None

    return limited


def test_questions_are_asked_side_by_side(apis: GoogleApis) -> None:
    meeting = Meeting(TOGETHER)

    def held(_: Asked) -> Answer | None:
        meeting.join()
        return None

    apis.rules.insert(0, held)
    assert wrong(cloud_checks.check(large())) == []
    assert len(apis.asked) > TOGETHER


@pytest.mark.parametrize("status", [429, 503])
def test_a_project_that_refuses_everything_for_a_while_has_a_row_for_each_question(
    apis: GoogleApis, status: int
) -> None:
    apis.rules.insert(0, lambda _: refusal(status, "later"))
    rows = wrong(cloud_checks.check(everything(), state=STATE))
    # That of accounts which do not exist asks nothing.
    assert len(rows) == len(checks(AskedStack(config=everything(), state=STATE))) - 1
    asked = {"Google", "snapshot.ubuntu.com", "developer.download.nvidia.com", "github.com"}
    assert {row.seen.partition(":")[0] for row in rows} == {f"{host} answers {status}" for host in asked}


def test_requests_go_through_a_proxy(apis: GoogleApis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in is the proxy: it is asked for addresses of Google, and answers for them."""
    proxy = apis.endpoint.removesuffix("/{}")
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, proxy)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
    monkeypatch.setattr(cloud_checks, "GOOGLE", "http://google.invalid/{}")
    assert wrong(cloud_checks.check(google())) == []
    assert {asked.headers["Host"] for asked in apis.asked} == {"google.invalid"}


def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        for name in ("https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{bound.getsockname()[1]}")
        monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "token")
        monkeypatch.setattr(cloud_checks, "GOOGLE", "https://{}.invalid")
        monkeypatch.setattr(cloud_questions, "PAUSES", ())
        rows = cloud_checks.check(google())
    assert {row.outcome for row in rows} == {CloudOutcome.NOT_ASKED}
    assert {row.todo for row in wrong(rows)} == {"check the network and the proxy, then run again"}


def large() -> ClusterConfig:
    """A stack of 256 nodes of A3 Mega."""
    return google(nodesets={"gpu": {**A3, "count": 256, "capacity": {"reservation": "held"}}})


def test_the_number_of_requests_does_not_grow_with_the_nodes() -> None:
    one, many = (checks(AskedStack(config=google(nodesets={"gpu": {**A3, "count": count}}))) for count in (1, 256))
    assert len(one) == len(many)


class TestLogin:
    def test_no_credential(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GOOGLE_CREDENTIALS", "/nowhere")
        with pytest.raises(GoogleCloudError, match="neither a key nor the path of one"):
            cloud_checks.check(google())

    def test_an_expired_login_is_one_error(self, apis: GoogleApis, monkeypatch: pytest.MonkeyPatch) -> None:
        def expired(_identity: object, _request: object) -> None:
            raise RefreshError("Reauthentication is needed.")

        monkeypatch.setattr(Credentials, "refresh", expired)
        monkeypatch.setattr(cloud_checks, "credentials", lambda _endpoint: Credentials(None))
        with pytest.raises(GoogleCloudError, match=r"could not log in .* Reauthentication is needed(?s:.*)gcloud auth"):
            cloud_checks.check(google())
        assert apis.asked == []

    def test_a_token_that_expires_meanwhile(self, apis: GoogleApis, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cloud_checks, "credentials", lambda _endpoint: Credentials("token"))
        apis.rules.insert(0, on(BILLING, refusal(401, "expired", reason="ACCESS_TOKEN_EXPIRED")))
        (hidden,) = wrong(cloud_checks.check(google()))
        assert hidden.seen == "your login has expired"

    @pytest.mark.parametrize(("own", "sent"), [(None, "my-project"), ("other", "other")])
    def test_a_user_has_a_quota_project(
        self, apis: GoogleApis, monkeypatch: pytest.MonkeyPatch, own: str | None, sent: str
    ) -> None:
        monkeypatch.setattr(cloud_checks, "credentials", lambda _endpoint: Credentials("t", quota_project_id=own))
        cloud_checks.check(google())
        assert {asked.headers.get("x-goog-user-project") for asked in apis.asked} == {sent}
