"""The application: routes, and what they are answered with."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from io import BytesIO
from typing import Annotated, Any

from fastapi import FastAPI, Path, Query
from fastapi.exceptions import RequestValidationError
from PIL import Image
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fovea import __version__
from fovea.basics import shown
from fovea.remote.questions import Asking, Keeping
from fovea.retrieval import Index
from fovea.serve import asking
from fovea.serve.answers import answer
from fovea.serve.elsewhere import Elsewhere, Question
from fovea.serve.engine import Engine
from fovea.serve.guard import Guard
from fovea.serve.metrics import Metrics
from fovea.serve.models import Networks
from fovea.serve.options import ServeOptions
from fovea.serve.pages import page_files
from fovea.serve.patience import Patience
from fovea.serve.refusing import Refused, as_refused, busy, described, found, refusal
from fovea.serve.room import Share
from fovea.serve.store import Held, Store
from fovea.serve.verbs import VERBS, Asked, Verb

TEXTS = "text"
TYPES = {"png": "image/png", "npy": "application/octet-stream", "html": "text/html"}
ABOUT = """Shows where a network looks. Send a picture as a part of a form (`multipart/form-data`) or in base64
(`application/json`); `output` says what comes back. The page at `/` uses nothing else."""
SHAPES = (400, 400), (500, 375), (375, 500), (500, 334), (640, 360), (900, 400)  # of most photographs
EVER = (401, 403, 421)  # what any request may be refused with
LOST = (404, 422, 503, *EVER)
REFUSALS = (400, 404, 408, 413, 415, 422, 503, *EVER)
SENT = {"key": "$response.body#/id"}
LINKS = {  # what can be done with a picture that was sent
    "preview": {"operationId": "preview_v1_pictures__key__preview_get", "parameters": SENT},
    "tile": {
        "operationId": "tile_v1_pictures__key__tiles__level___column___row__get",
        "parameters": SENT | {"level": 0, "column": 0, "row": 0},
    },
    "drop": {"operationId": "drop_v1_pictures__key__delete", "parameters": SENT},
}
Key = Annotated[str, Path(max_length=64, description="The picture's id, or example:NAME.")]
Place = Annotated[int, Path(ge=0, le=1 << 24)]


class KeptPicture(BaseModel):
    """A picture that stays for a while."""

    id: str
    name: str
    width: int
    height: int
    bytes: int
    deep: bool  # it is read window by window: show it by its tiles


@dataclass(frozen=True)
class Service:
    """What the routes share."""

    options: ServeOptions
    networks: Networks
    store: Store
    engine: Engine
    metrics: Metrics
    index: Index | None = None
    elsewhere: Elsewhere | None = None  # who does the work; the lanes of the engine if nobody is there

    async def ask(self, verb: Verb, fields: type[Asking], request: Request) -> Response:
        """Read, decode, run with others of its kind, answer."""
        self.engine.demand_place()
        with self.engine.room.share() as share:
            asked, data = await asking.read(request, fields, self.options.limits, share)
            with self.working(request) as patience:
                return await self._answer(verb, asked, data, share, patience)

    @contextmanager
    def working(self, request: Request) -> Iterator[Patience]:
        """On a request that has come, in its place; the one who asks may go away meanwhile."""
        with self.engine.place():
            gone = asyncio.ensure_future(_gone(request))
            try:
                yield Patience(self.options.limits.seconds, gone)
            finally:
                gone.cancel()

    async def _answer(
        self, verb: Verb, asked: Asking, data: bytes | None, share: Share, patience: Patience
    ) -> Response:
        start = time.perf_counter()
        self.metrics.bytes.inc(len(data or b""))
        self.networks.of(verb, asked)
        text = getattr(asked, TEXTS, None)
        if text is not None and (data is not None or asked.picture_id is not None):
            raise Refused(422, "a text and a picture are both given: send one of them")
        held = None if text is not None else self._held(asked, data)
        with ExitStack() as stack:
            if held is not None:
                stack.enter_context(held.telling())
            if held is not None and data is not None:
                stack.callback(held.close)
            if self.elsewhere is None:
                body, media = await self.work(verb, asked, held, share, patience)
            else:
                picture = None if held is None else (held.name, await self.engine.beside(patience, held.whole))
                question = Question.of(asked, picture)
                reply = await patience.wait(asyncio.ensure_future(self.elsewhere.ask(question)))
                for lane, size in reply.batches:
                    self.metrics.batch(lane, size)
                body, media = reply.demand()
        ms = 1000 * (time.perf_counter() - start)
        return Response(body, media_type=media, headers={"Server-Timing": f"work;dur={ms:.1f}"})

    async def work(
        self, verb: Verb, asked: Asking, held: Held | None, share: Share, patience: Patience
    ) -> tuple[bytes, str]:
        """The body of an answer about a picture, or about the text in the words, and its type."""
        start = time.perf_counter()
        network = self.networks.of(verb, asked)
        item = getattr(asked, TEXTS, None) if held is None else await self.ready(held, share, patience)
        of = Asked(network, asked, self.options.limits, self.index)
        lane, kind = "slow" if verb.slow(asked) else "quick", (verb.name, id(network), asked.kind)
        result = await self.engine.run(lane, kind, item, partial(verb.answers, of), patience)
        ms = 1000 * (time.perf_counter() - start)
        output = asked.output  # type: ignore[attr-defined]
        return await self.engine.beside(patience, answer, verb, verb.settings(of), result, output, ms)

    async def warm(self) -> None:
        """Before the first request, the usual network is asked about photographs of several proportions, of one and
        mixed: what is made once is made, and memory taken as will be needed. Where it cannot, whoever asks is told."""
        verb, count = VERBS["explain"], self.options.limits.batch
        fields = asking.narrowed(verb.fields, verb.outputs, self.networks.able(verb))
        forever = Patience(math.inf, asyncio.get_running_loop().create_future())

        async def ask(size: tuple[int, int]) -> None:
            with self.engine.room.share() as share:
                await self._answer(verb, fields.model_validate({}), _gray(size), share, forever)

        mixed = [[SHAPES[turn * place % len(SHAPES)] for place in range(count)] for turn in (1, 2, 3, 5)]
        for sizes in [*([shape] * count for shape in SHAPES), *mixed] if self.networks.able(verb) else ():
            await asyncio.gather(*map(ask, sizes), return_exceptions=True)

    def stop(self) -> None:
        """Once all that waits is done."""
        self.engine.stop()
        self.store.close()

    async def ready(self, held: Held, share: Share, patience: Patience) -> Any:
        """The picture, decoded once there is room for it."""
        await share.wait_for(await self.engine.beside(patience, held.claims), patience)
        picture = await self.engine.beside(patience, held.ready)
        self.store.shrink()
        return picture

    def _held(self, asked: Asking, data: bytes | None) -> Held:
        if data is not None and asked.picture_id is not None:
            raise Refused(422, "picture and picture_id are both given: send one of them")
        if data is not None:
            return self.store.hold(asking.named(asked.name), data)
        if asked.picture_id is None:
            raise Refused(
                422, "no picture: send 'picture' (a file, or base64 in JSON), or 'picture_id' of one that is here"
            )
        return self.store.get(asked.picture_id)


def _gray(size: tuple[int, int]) -> bytes:
    buffer = BytesIO()
    Image.new("RGB", size, "gray").save(buffer, "jpeg")
    return buffer.getvalue()


async def _gone(request: Request) -> None:
    """Ends when the one who asks is gone."""
    while True:
        if (await request.receive())["type"] == "http.disconnect":
            return


def application(
    options: ServeOptions, networks: Networks, index: Index | None = None, elsewhere: Elsewhere | None = None
) -> FastAPI:
    """The service with these networks; where their replicas are elsewhere, those here only say what they can do."""
    metrics = Metrics()
    engine = Engine(options.limits, metrics)
    service = Service(options, networks, Store(options.limits), engine, metrics, index, elsewhere)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if elsewhere is None:
            await service.warm()
        yield
        await asyncio.to_thread(service.stop)

    app = FastAPI(
        title="fovea", version=__version__, description=ABOUT, docs_url=None, redoc_url=None, redirect_slashes=False,
        lifespan=lifespan,
    )  # fmt: skip
    app.state.service = service
    app.add_middleware(Guard, options=options, metrics=metrics)
    app.add_exception_handler(HTTPException, _not_there)
    app.add_exception_handler(RequestValidationError, _wrong)
    for verb in VERBS.values():
        _add_verb(app, service, verb)
    _add_pictures(app, service)
    _add_about(app, service)
    for path, (body, media) in page_files().items():
        app.add_api_route(path, _static(body, media), include_in_schema=False)
    return app


def _add_verb(app: FastAPI, service: Service, verb: Verb) -> None:
    fields = asking.narrowed(verb.fields, verb.outputs, service.networks.able(verb))

    async def ask(request: Request) -> Response:
        return await service.ask(verb, fields, request)

    body = {"required": True, "content": asking.schemas(fields, verb.name)}
    app.add_api_route(
        f"/v1/{verb.name}", in_words(ask), methods=["POST"], name=verb.name, summary=verb.about,
        response_class=Response, openapi_extra={"requestBody": body},
        responses=found(verb.about, _contents(verb)) | described(*REFUSALS),
    )  # fmt: skip


def _contents(verb: Verb) -> dict[str, Any]:
    """Of what comes back, by type."""
    types = {"application/json": {"schema": {"type": "object"}}}
    return types | {TYPES[output]: {} for output in verb.outputs if output in TYPES}


def _add_pictures(app: FastAPI, service: Service) -> None:
    store, engine = service.store, service.engine

    async def keep(request: Request) -> Response:
        engine.demand_place()
        with engine.room.share() as share:
            asked, data = await asking.read(request, Keeping, service.options.limits, share)
            if data is None:
                raise Refused(422, "no picture: send 'picture' (a file, or base64 in JSON)")
            held = store.hold(asking.named(asked.name), data)
            try:
                with service.working(request) as patience:
                    await service.ready(held, share, patience)
                    width, height = await engine.beside(patience, lambda: held.size)
            except BaseException:
                held.close()
                raise
            facts = {
                "name": held.name,
                "width": width,
                "height": height,
                "bytes": len(data),
                "deep": held.file is not None,
            }
            return JSONResponse({"id": store.keep(held), **facts}, 201)

    async def preview(request: Request, key: Key) -> Response:
        held = store.get(key)
        with engine.room.share() as share, service.working(request) as patience:
            await service.ready(held, share, patience)
            return Response(await engine.beside(patience, held.preview), media_type="image/jpeg")

    async def tile(request: Request, key: Key, level: Place, column: Place, row: Place) -> Response:
        held = store.get(key)
        with engine.room.share() as share, service.working(request) as patience:
            await service.ready(held, share, patience)
            made = await engine.beside(patience, held.tile, level, column, row)
        return Response(made, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    async def drop(request: Request, key: Key) -> Response:
        store.drop(key)
        return Response(status_code=204)

    kept, jpeg = "/v1/pictures/{key}", found("A JPEG.", {"image/jpeg": {}})
    body = {"required": True, "content": asking.schemas(Keeping, "pictures")}
    here: dict[int | str, dict[str, Any]] = {201: {"description": "It is here.", "links": LINKS}}
    app.add_api_route("/v1/pictures", in_words(keep), methods=["POST"], status_code=201, response_model=KeptPicture,
                      summary="Send a picture once, and ask about it by its id.", openapi_extra={"requestBody": body},
                      responses=here | described(*REFUSALS))  # fmt: skip
    app.add_api_route(kept, in_words(drop), methods=["DELETE"], status_code=204, response_class=Response,
                      summary="Forget a picture.", responses=described(*LOST))  # fmt: skip
    app.add_api_route(f"{kept}/preview", in_words(preview), response_class=Response, summary="The picture, small.",
                      responses=jpeg | described(*LOST))  # fmt: skip
    app.add_api_route(f"{kept}/tiles/{{level}}/{{column}}/{{row}}", in_words(tile), response_class=Response,
                      summary="A tile of it; levels as of DZI.", responses=jpeg | described(*LOST))  # fmt: skip


def _add_about(app: FastAPI, service: Service) -> None:
    async def known(request: Request) -> dict[str, Any]:
        return service.networks.about(service.options, service.index)

    first = list(service.networks.found)[:1]

    async def labels(request: Request, net: Annotated[str, Query(max_length=200, examples=first)]) -> dict[str, Any]:
        return {"labels": list(service.networks.get(net).labels or ())}

    async def healthy(request: Request) -> dict[str, str]:
        return {"status": "ok"}

    async def ready(request: Request) -> dict[str, str]:
        if service.engine.stopping:
            raise busy("the service is stopping")
        if service.elsewhere is not None and not await service.elsewhere.running():
            raise busy("no replica of the networks is running")
        return {"status": "ready"}

    async def metrics(request: Request) -> Response:
        service.metrics.kept.set(service.store.memory)
        service.metrics.replicas.set(1 if service.elsewhere is None else await service.elsewhere.running())
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    plain = found("Prometheus' text format.", {"text/plain": {}})
    app.add_api_route("/v1/models", in_words(known), summary="Networks, methods, examples and limits.",
                      responses=described(*EVER))  # fmt: skip
    app.add_api_route("/v1/labels", in_words(labels), summary="The classes of a network.", responses=described(*LOST))
    app.add_api_route("/healthz", in_words(healthy), summary="Whether it runs.", responses=described(*EVER[1:]))
    app.add_api_route(
        "/readyz", in_words(ready), summary="Whether it takes requests.", responses=described(*EVER[1:], 503)
    )
    app.add_api_route("/metrics", in_words(metrics), response_class=Response, summary="For Prometheus.",
                      responses=plain | described(*EVER))  # fmt: skip


def in_words(route: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The route, refusing in words what is the request's fault."""

    @wraps(route)
    async def call(*args: Any, **given: Any) -> Any:
        try:
            return await route(*args, **given)
        except Exception as error:
            refused = as_refused(error)
            if refused is None:
                raise
            return refusal(refused)

    return call


def _static(body: bytes, media: str) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return Response(body, media_type=media, headers={"Cache-Control": "no-cache"})

    return send


async def _not_there(request: Request, error: Any) -> Response:
    words = {
        404: "there is nothing at this path; /openapi.json says what there is",
        405: "this path takes another method",
    }
    return refusal(Refused(error.status_code, words.get(error.status_code, str(error.detail)), error.headers))


async def _wrong(request: Request, error: Any) -> Response:
    first = error.errors()[0]
    return refusal(Refused(422, f"{first['loc'][-1]}: {first['msg']}; got {shown(first.get('input'))}"))
