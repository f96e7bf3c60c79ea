"""A client of Compute Engine for bakes: it retries each call where that can help, and waits for each operation.

Source of fields and enums: compute.v1 discovery document, revision 20261106.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from http import HTTPStatus
from typing import Any

from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.api_core.retry import Retry
from google.auth.exceptions import GoogleAuthError, TransportError
from google.cloud import compute_v1
from requests.exceptions import ConnectionError as NoConnection
from requests.exceptions import RequestException, Timeout

from components.gcp.bake_design import (
    BOOTED_LABEL,
    CLUSTER_LABEL,
    LATER,
    LOG_IN,
    OWNER_LABEL,
    Bake,
    ErrorRow,
    GoogleCloudError,
    bake_refusal,
    cloud_error,
    error_rows,
    image_labels,
)
from components.gcp.credentials import credentials, host

REQUEST_SECONDS = 60.0
"""Time limit of one answer."""
READY = "READY"
"""Status of an image that is complete."""
CONSOLE_PAGES = 8
"""Pages of a megabyte at most each: Google keeps one (instances.getSerialPortOutput)."""

Method = Callable[..., Any]
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Compute:
    """The calls of one bake. All raise GoogleCloudError where Google refuses or does not answer."""

    def __init__(self, bake: Bake) -> None:
        """Raises GoogleCloudError where there are no credentials."""
        self.bake = bake
        endpoint = host(bake.endpoint) if bake.endpoint else None
        self._client_args = args = {
            "credentials": credentials(bake.endpoint),
            "client_options": ClientOptions(api_endpoint=endpoint),
        }
        self._instances = compute_v1.InstancesClient(**args)
        self._images = compute_v1.ImagesClient(**args)
        self._zonal = compute_v1.ZoneOperationsClient(**args)
        self._global = compute_v1.GlobalOperationsClient(**args)
        self._zone = {"project": bake.project, "zone": bake.zone}
        self._image = {"project": bake.project, "image": bake.image}

    def with_bake(self, bake: Bake) -> "Compute":
        """Return the same clients for another machine of the same bake."""
        other = copy(self)
        other.bake = bake
        return other

    @property
    def _builder(self) -> dict[str, str]:
        return {**self._zone, "instance": self.bake.builder}

    # -- the builder -----------------------------------------------------------------------------------------------

    def builder(self) -> compute_v1.Instance | None:
        return self._ask_or_none(f"look for the builder {self.bake.builder}", self._instances.get, self._builder)

    def create_builder(self, instance: compute_v1.Instance) -> None:
        """Create the builder, and wait until it starts."""
        request = {**self._zone, "instance_resource": instance}
        self._operate(f"make the builder {self.bake.builder}", self._instances.insert_unary, request)

    def stop_builder(self) -> None:
        """Stop the builder, and wait until it has stopped."""
        self._operate(f"stop the builder {self.bake.builder}", self._instances.stop_unary, self._builder)

    def delete_builder(self) -> None:
        """Delete the builder with its disk, and wait until it is gone; none is fine."""
        self._delete(f"delete the builder {self.bake.builder}", self._instances.delete_unary, self._builder)

    def progress(self) -> str | None:
        """Return the builder's last report, the guest attribute hpc/bake; None until it is set, or without a
        builder."""
        request = {**self._builder, "query_path": "hpc/bake"}
        answer = self._ask_or_none("read the builder's progress", self._instances.get_guest_attributes, request)
        return next((item.value for item in answer.query_value.items), None) if answer else None

    def console(self) -> list[str]:
        """Return the lines that the builder wrote to its serial port, as far as Google keeps them."""
        text, start = "", 0
        for _ in range(CONSOLE_PAGES):
            request = {**self._builder, "port": 1, "start": start}
            page = self._ask_or_none("read the builder's console", self._instances.get_serial_port_output, request)
            if page is None or not page.contents:
                break
            text, start = text + page.contents, page.next_
        lines = _COLOURS.sub("", text).splitlines()
        return ["".join(c for c in line if c.isprintable() or c == "\t").rstrip() for line in lines]

    # -- the image -------------------------------------------------------------------------------------------------

    def image(self) -> compute_v1.Image | None:
        """Return the image, complete or not; None if there is none."""
        return self._ask_or_none(f"look for the image {self.bake.image}", self._images.get, self._image)

    def finished_image(self) -> compute_v1.Image | None:
        """Return the image if it is complete."""
        image = self.image()
        return image if image is not None and image.status == READY else None

    def create_image(self, image: compute_v1.Image) -> None:
        """Write the image, and wait until it is written."""
        request = {"project": self.bake.project, "image_resource": image}
        doing, seconds = f"write the image {self.bake.image}", self.bake.pace.image
        self._operate(doing, self._images.insert_unary, request, seconds=seconds)

    def label_image(self, image: compute_v1.Image, **more: str) -> None:
        """Set the image's labels to those of the bake and `more`. The labels `hpc-booted` and `hpc-owner` are kept."""
        kept = {name: value for name, value in image.labels.items() if name in (BOOTED_LABEL, OWNER_LABEL)}
        expected = {**image_labels(self.bake), **kept, **more}
        doing = f"label the image {self.bake.image}"
        while dict(image.labels) != expected:
            labels = compute_v1.GlobalSetLabelsRequest(labels=expected, label_fingerprint=image.label_fingerprint)
            request: dict[str, Any] = {"project": self.bake.project, "resource": self.bake.image}
            request["global_set_labels_request_resource"] = labels
            # None where another change came first: the labels that the request was based on are outdated.
            set_labels = self._images.set_labels_unary
            operation = self._ask(doing, set_labels, request, none_for=HTTPStatus.PRECONDITION_FAILED)
            if operation is not None:
                return self._wait_for(doing, operation)
            # The request has no id by which Google identifies a repeated one. If the first one was applied, the labels
            # read here are the expected ones.
            image = self._ask(doing, self._images.get, self._image)
        return None

    def delete_image(self) -> None:
        """Delete the image, and wait until it is gone; none is fine."""
        self._delete(f"delete the image {self.bake.image}", self._images.delete_unary, self._image)

    # -- resources of a whole cluster ------------------------------------------------------------------------------

    def instances_of(self, cluster: str) -> list[compute_v1.Instance]:
        """Return the instances in the zone that have the cluster's label."""
        request = {**self._zone, "filter": f"labels.{CLUSTER_LABEL}={cluster}"}
        return self._ask(f"look for instances in {self.bake.zone}", all_pages(self._instances.list), request)

    def images_of(self, cluster: str) -> list[compute_v1.Image]:
        request = {"project": self.bake.project, "filter": f"labels.{CLUSTER_LABEL}={cluster}"}
        return self._ask("look for images", all_pages(self._images.list), request)

    # -- requests and operations -----------------------------------------------------------------------------------

    def _ask(self, doing: str, method: Method, request: dict[str, Any], *, none_for: int | None = None) -> Any:  # noqa: ANN401
        """Return the answer; None for an error with the HTTP status `none_for`. Raises GoogleCloudError for any other
        error."""
        pace = self.bake.pace
        retry = Retry(predicate=_is_transient, initial=min(1.0, pace.poll), maximum=30.0, timeout=pace.retry_seconds)
        try:
            return method(request=request, retry=retry, timeout=REQUEST_SECONDS)
        except exceptions.RetryError as error:
            raise self._refusal(doing, error_rows(error.cause or error)) from error
        except (exceptions.GoogleAPICallError, RequestException) as error:
            if none_for is not None and getattr(error, "code", None) == none_for:
                return None
            raise self._refusal(doing, error_rows(error)) from error
        except GoogleAuthError as error:
            raise cloud_error(f"could not {doing}: Google does not take the credentials: {error}", LOG_IN) from error

    def _ask_or_none(self, doing: str, method: Method, request: dict[str, Any]) -> Any | None:  # noqa: ANN401
        return self._ask(doing, method, request, none_for=HTTPStatus.NOT_FOUND)

    def _operate(self, doing: str, method: Method, request: dict[str, Any], *, seconds: float | None = None) -> None:
        """Begin an operation, and wait until it is done."""
        self._wait_for(doing, self._ask(doing, method, {**request, **request_id()}), seconds=seconds)

    def _delete(self, doing: str, method: Method, request: dict[str, str]) -> None:
        operation = self._ask_or_none(doing, method, {**request, **request_id()})
        if operation is not None:
            self._wait_for(doing, operation)

    def _refusal(self, doing: str, errors: Sequence[ErrorRow]) -> GoogleCloudError:
        return bake_refusal(self.bake, doing, errors)

    def _wait_for(self, doing: str, operation: compute_v1.Operation, *, seconds: float | None = None) -> None:
        # Not ExtendedOperation.result(): the client that it polls with has Google's own address, whatever the endpoint.
        pace, done = self.bake.pace, compute_v1.Operation.Status.DONE
        limit = pace.operation if seconds is None else seconds
        deadline = time.monotonic() + limit
        while operation.status != done:
            if time.monotonic() > deadline:
                raise cloud_error(
                    f"could not {doing}: Google's operation {operation.name} was not done in {limit / 60:g} minutes",
                    f"look at https://console.cloud.google.com/compute/operations?project={self.bake.project}, "
                    "then run again",
                )
            time.sleep(pace.poll)
            operation = self._read_operation(doing, operation)
        if operation.error.errors:
            raise self._refusal(doing, operation_error_rows(operation.error))

    def _read_operation(self, doing: str, operation: compute_v1.Operation) -> compute_v1.Operation:
        if operation.zone:
            return self._ask(doing, self._zonal.get, {**self._zone, "operation": operation.name})
        return self._ask(doing, self._global.get, {"project": self.bake.project, "operation": operation.name})


def operation_error_rows(error: compute_v1.Error) -> list[ErrorRow]:
    """Return the errors of an operation that has ended."""
    rows: list[ErrorRow] = []
    for row in error.errors:
        quotas = [detail.quota_info for detail in row.error_details if detail.quota_info.limit_name]
        limits = [" in ".join((f"{q.limit_name}: {q.limit:g}", *q.dimensions.values())) for q in quotas]
        rows.append(ErrorRow(row.code, row.message, "; ".join(limits)))
    return rows


def all_pages(method: Callable[..., Iterable[Any]]) -> Callable[..., list[Any]]:
    """Return a method that reads all pages of a method's answer."""
    return lambda **request: list(method(**request))


def request_id() -> dict[str, str]:
    """Return the parameter by which Google identifies a request that is sent again."""
    return {"request_id": str(uuid.uuid4())}


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, exceptions.ClientError) and any(row.code in LATER for row in error_rows(error)):
        return True
    later = (exceptions.TooManyRequests, exceptions.ServerError, NoConnection, Timeout, TransportError)
    return isinstance(error, later)
