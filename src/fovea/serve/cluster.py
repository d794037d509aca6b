"""The service on a Ray cluster: one door, and replicas of the networks behind it, as many as there is work for.

The door is the service itself, with its limits, its clocks and the pictures that stay: `fovea serve --engine ray` keeps
it in its own process, `serve run fovea.serve.cluster:app` puts it behind Ray's proxy. Every question is sent on to a
replica as it came. A replica is the service once more, without a door: it decodes, batches what comes together, runs
the network and writes the answer."""

import asyncio
import os
import platform
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from logging import CRITICAL, ERROR, WARNING, getLogger
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import ray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from ray import serve
from ray.exceptions import ObjectLostError, RayActorError, RayError, WorkerCrashedError
from ray.serve.exceptions import DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

from fovea import __version__
from fovea.basics import BOUNDS, BadChoice, FoveaError, keep_flat, processors
from fovea.retrieval import Index, open_index
from fovea.serve import asking
from fovea.serve.application import Service, application
from fovea.serve.elsewhere import Question, Reply
from fovea.serve.engine import Engine
from fovea.serve.metrics import Metrics, log_to_stderr, note
from fovea.serve.models import loaded
from fovea.serve.options import Limits, Scale, ServeOptions, demand_token
from fovea.serve.patience import Patience
from fovea.serve.refusing import FAULT, as_refused, busy
from fovea.serve.store import Store
from fovea.serve.verbs import VERBS

TOKEN = "FOVEA_TOKEN"
LOST = (
    RayActorError,
    ObjectLostError,
    WorkerCrashedError,
)  # a replica ended; it was not the question's fault, or was it
TRIES, PAUSE = 4, 0.1  # of one question, and seconds between the first two of them, then twice as many
QUIET = {"log_level": "WARNING", "enable_access_log": False}
DOOR = 1000  # requests at once; the queue is the service's own
FRESH = 1.0  # seconds for which the number of replicas is not asked for again
SCALING = {"upscale_delay_s": 5.0, "downscale_delay_s": 60.0, "look_back_period_s": 5.0}
HEALTH: dict[str, Any] = {"health_check_period_s": 2.0, "health_check_timeout_s": 30.0}


class Told(Metrics):
    """Batches, until the next reply takes them along to whoever counts."""

    def __init__(self) -> None:
        super().__init__()
        self.batches_done = deque[tuple[str, int]]()

    def batch(self, lane: str, size: int) -> None:
        self.batches_done.append((lane, size))

    def taken(self) -> Sequence[tuple[str, int]]:
        return [self.batches_done.popleft() for _ in range(len(self.batches_done))]


class Replica:
    """The networks of a service in a process of their own."""

    async def __init__(self, options: ServeOptions, version: str) -> None:  # type: ignore[misc]
        if version != __version__:
            raise BadChoice(f"this machine of the cluster has fovea {__version__}, and the service {version}")
        keep_flat(few_kernels=True)
        log_to_stderr()
        index, self.metrics = _index(options, options.device), Told()
        networks, engine = loaded(options, index), Engine(options.limits, self.metrics)
        self.service = Service(options, networks, Store(options.limits), engine, self.metrics, index)
        self.fields = {
            name: asking.narrowed(verb.fields, verb.outputs, networks.able(verb)) for name, verb in VERBS.items()
        }
        await self.service.warm()
        self.metrics.taken()

    async def ask(self, question: Question) -> Reply:
        """The answer; one who cancels it has the work given up."""
        service, held = self.service, None
        try:
            asked = self.fields[question.verb].model_validate(question.words)
            if question.data is not None:
                held = service.store.hold(question.name, question.data)
            with service.engine.room.share() as share:
                patience = Patience(service.options.limits.seconds, asyncio.get_running_loop().create_future())
                body, media = await service.work(VERBS[question.verb], asked, held, share, patience)
            return Reply(body, media, batches=self.metrics.taken())
        except Exception as error:
            refused = as_refused(error)
            if refused is None:
                note("fault", ERROR, error)
                return Reply(refused=(500, FAULT, {}), batches=self.metrics.taken())
            return Reply(refused=(refused.status, str(refused), refused.headers), batches=self.metrics.taken())
        finally:
            if held is not None:
                held.close()

    def __del__(self) -> None:
        if hasattr(self, "service"):
            self.service.stop()


class Replicas:
    """Those of one application, by Ray's handle. A question is a question: where a replica ends before its answer, the
    next one is asked, a few times at most, since it may be the question that ends them."""

    def __init__(self, handle: "DeploymentHandle[Any]", name: str) -> None:
        self.handle, self.name, self.known = handle, name, (-FRESH, 0)

    async def ask(self, question: Question) -> Reply:
        for turn in range(TRIES):
            response = self.handle.ask.remote(question)
            try:
                return await response
            except LOST as error:
                note("replica lost", WARNING, turn=turn, kind=type(error).__name__)
            except DeploymentUnavailableError:
                raise busy("the replicas of the networks do not start: ask again later") from None
            except asyncio.CancelledError:
                response.cancel()  # type: ignore[no-untyped-call]
                raise
            await asyncio.sleep(PAUSE * 2**turn)
        raise busy("replicas ended before they had an answer to this: ask again later")

    async def running(self) -> int:
        if time.monotonic() - self.known[0] >= FRESH:
            self.known = time.monotonic(), await asyncio.to_thread(self._count)
        return self.known[1]

    def _count(self) -> int:
        with suppress(RayError, serve.exceptions.RayServeException, KeyError):
            states = serve.status().applications[self.name].deployments[Replica.__name__].replica_states
            return sum(count for state, count in states.items() if state == "RUNNING")
        return 0


class Door:
    """The service behind Ray's proxy: the same application, as a deployment."""

    async def __init__(self, options: ServeOptions, handle: "DeploymentHandle[Any]") -> None:  # type: ignore[misc]
        log_to_stderr()
        index = _index(options, "cpu")
        elsewhere = Replicas(handle, serve.get_replica_context().app_name)
        self.app = application(options, loaded(replace(options, device="cpu"), index), index, elsewhere)
        self.life = self.app.router.lifespan_context(self.app)
        await self.life.__aenter__()

    async def __call__(self, request: Request) -> Response:
        sent = list[Message]()

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(request.scope, request.receive, send)
        response = Response(b"".join(message.get("body", b"") for message in sent), sent[0]["status"])
        response.raw_headers = list(sent[0]["headers"])
        return response

    async def __del__(self) -> None:
        if hasattr(self, "life"):
            await self.life.__aexit__(None, None, None)


def _listed(given: Any) -> Any:
    """As `serve run` has it: a,b."""
    return given.split(",") if isinstance(given, str) else given


def _number(name: str, usual: float) -> Any:
    return Field(usual, ge=BOUNDS[name].least, le=BOUNDS[name].most)


Words: TypeAlias = Annotated[list[str], BeforeValidator(_listed)]


class Arguments(BaseModel):
    """Of `app`, in the words of `fovea serve`; `token` is better left to $FOVEA_TOKEN."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

    net: Words = []
    index: Path | None = None
    token: str | None = None
    allow_host: Words = []
    allow_origin: Words = []
    max_bytes: int = _number("max_bytes", Limits.bytes)
    max_pixels: int = _number("max_pixels", Limits.pixels)
    timeout: float = _number("timeout", Limits.seconds)
    queue: int = _number("queue", Limits.queue)
    batch: int = _number("batch", Limits.batch)
    device: str = "auto"
    replicas: str = "1-4"
    cpus: float = Field(1.0, gt=0, le=1024)  # of each replica
    gpus: float = Field(0.0, ge=0, le=64)

    def options(self) -> ServeOptions:
        limits = Limits(self.max_bytes, self.max_pixels, self.timeout, self.queue, self.batch)
        token = self.token or os.environ.get(TOKEN) or None
        return ServeOptions(
            self.net, self.index, token=token, hosts=self.allow_host, origins=self.allow_origin, device=self.device,
            limits=limits,
        )  # fmt: skip


def app(arguments: Arguments) -> serve.Application:
    """Door and replicas, for `serve run fovea.serve.cluster:app net=…` and for Serve's config files."""
    options = arguments.options()
    demand_token(options)
    scale = Scale.of(arguments.replicas, arguments.cpus, arguments.gpus)
    door = serve.deployment(
        name=Door.__name__, num_replicas=1, max_ongoing_requests=DOOR, ray_actor_options={"num_cpus": 0.5},
        graceful_shutdown_timeout_s=options.limits.seconds, logging_config=QUIET,
    )(Door)  # fmt: skip
    return door.bind(options, networks(options, scale))


def networks(options: ServeOptions, scale: Scale) -> serve.Application:
    """The replicas alone."""
    batch, limits = options.limits.batch, options.limits
    count: dict[str, Any] = {"num_replicas": scale.least}
    if scale.most > scale.least:
        bounds = {"min_replicas": scale.least, "max_replicas": scale.most}
        count = {"autoscaling_config": {**bounds, **SCALING, "target_ongoing_requests": batch}}
    deployment = serve.deployment(
        name=Replica.__name__, max_ongoing_requests=2 * batch, max_constructor_retry_count=1,
        ray_actor_options={"num_cpus": scale.cpus, "num_gpus": scale.gpus}, logging_config=QUIET,
        graceful_shutdown_timeout_s=limits.seconds, **HEALTH, **count,
    )(Replica)  # fmt: skip
    return deployment.bind(replace(options, token=None), __version__)


@contextmanager
def deployed(options: ServeOptions, scale: Scale, address: str | None = None) -> Iterator[Replicas]:
    """Replicas on the cluster at this address, which is left as it was; on one of our own if there is none, which ends.

    They are called after this machine and port: whoever starts the service here again takes the place of those that a
    service left which could not end."""
    name = f"fovea-{platform.node()}-{options.port or secrets.token_hex(4)}"
    _join(address, options.limits, scale)
    try:
        demand_room(scale)
        serve.start(proxy_location="Disabled", logging_config=QUIET)
        _log_as_we_do(WARNING)
        try:
            yield Replicas(_run(networks(options, scale), name), name)
        finally:
            with suppress(RayError, serve.exceptions.RayServeException, RuntimeError):
                serve.delete(name)
    finally:
        _log_as_we_do(CRITICAL)  # threads of Ray's log that it is gone
        ray.shutdown()


def _run(replicas: serve.Application, name: str) -> "DeploymentHandle[Any]":
    try:
        return serve.run(replicas, name=name, route_prefix=None, logging_config=QUIET)
    except RuntimeError as error:
        raise FoveaError(f"the replicas do not start: {_last_line(error)}") from None


def _join(address: str | None, limits: Limits, scale: Scale) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": ERROR}
    if address is None:
        ray.init(
            "local", num_cpus=max(processors(), scale.cores), include_dashboard=False,
            object_store_memory=2 * max(limits.coming, limits.bytes), **quiet,
        )  # fmt: skip
        return
    try:
        ray.init(address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        raise BadChoice(f"no Ray cluster at --address {address}: {_last_line(error)}") from None


def demand_room(scale: Scale) -> None:
    """Replicas would wait for it for ever, without a word."""
    needs = {"CPU": scale.least * scale.cpus, "GPU": scale.least * scale.gpus}
    has = ray.cluster_resources()  # type: ignore[no-untyped-call]
    if short := [name for name, need in needs.items() if has.get(name, 0) < need]:
        words = " and ".join(f"{needs[name]:g} {name}, and it has {has.get(name, 0):g}" for name in short)
        raise BadChoice(f"the cluster is too small: replicas take {words}; name fewer --replicas or another --device")


def _index(options: ServeOptions, device: str) -> Index | None:
    return None if options.index is None else open_index(options.index, device=device)


def _last_line(error: Exception) -> str:
    return next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__).strip()


def _log_as_we_do(level: int) -> None:
    """Ray's own lines are written as the service's are, from this level on."""
    for name in ("ray", "ray.serve"):  # each has a level of its own
        logger = getLogger(name)
        logger.handlers, logger.propagate = [], True
        logger.setLevel(level)
