"""Requests as nobody should send them.

Each family is a function from a seeded random to requests. No answer to any of them may be a good one.
"""

import json
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from io import BytesIO
from random import Random
from typing import Any

from mutators import BYTES, PLACES, mutated
from PIL import Image

from serve.sending import (
    BOUNDARY,
    END,
    HOST,
    Hostile,
    chunk,
    form,
    part,
    picture,
    png_of,
    posted,
    request,
    uploaded,
)

FORMATS = ("jpeg", "png", "webp", "tiff", "gif", "bmp", "jpeg2000", "avif", "ppm", "tga", "sgi", "pcx", "qoi")
STRONG = ("jpeg", "png", "webp", "tiff")
VERBS = ("look", "explain", "localize", "predict", "sanity")
PATHS = (
    "../../etc/passwd", "/etc/passwd", "..\\..\\windows\\win.ini", "C:\\Windows\\win.ini", "\\\\server\\share\\a.png",
    "file:///etc/passwd", "http://127.0.0.1:9/a.png", "https://example.org/net.pth", "//example.org/a", "~root/.ssh/id",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "....//....//etc/passwd", "/proc/self/environ", "/dev/zero", "a\0.png", ".",
    "..", "/", "NUL", "con.png", "os:system", "os.path:join", "fovea.networks:load", "builtins:eval",
    "__import__('os')", "timm/resnet18", "torchvision/resnet50", "transformers/google/vit-base-patch16-224",
    "hf-hub:timm/resnet18", "$(id)", "`id`", "; ls", "{{7*7}}", "%s%n", "<script>alert(1)</script>", "' OR 1=1 --",
    "\u202egnp.a", "é" * 60, "\ud7ff", "a" * 199, "*", "?", "[a]", "-rf", "--help", "l2caf:x=1", "gradcam:layer=/etc",
)  # fmt: skip


def claims() -> dict[str, bytes]:
    """Small files that claim to be enormous."""
    far, known = (30_000, 30_000), {kind: picture(kind) for kind in FORMATS}
    tiff = bytearray(known["tiff"])
    (at,) = struct.unpack("<I", tiff[4:8])
    for entry in (at + 2, at + 14):
        tiff[entry + 2 : entry + 12] = struct.pack("<HII", 4, 1, 10**8)
    sof = known["jpeg"].index(b"\xff\xc0") + 5
    webp = b"RIFF" + struct.pack("<I", 22) + b"WEBPVP8X" + struct.pack("<I", 10) + b"\x02\0\0\0" + b"\xfe\x3f\0" * 2
    return {
        "png 30,000 x 30,000, nothing in it": png_of(*far, b""),
        "png 30,000 x 30,000, RGBA": png_of(*far, zlib.compress(bytes(1000)), 8, 6),
        "png 2^31 x 2^31": png_of(2**31 - 1, 2**31 - 1, zlib.compress(bytes(100)), 16, 2),
        "png 1 x 2^31": png_of(1, 2**31 - 1, zlib.compress(bytes(100))),
        "png 0 x 0": png_of(0, 0, zlib.compress(b"")),
        "png 20,000 x 10,000, all of it": png_of(20_000, 10_000),
        "png 10,001 x 10,000, all of it": png_of(10_001, 10_000),
        "gif 65,535 x 65,535": known["gif"][:6] + b"\xff" * 4 + known["gif"][10:],
        "tiff 10^8 x 10^8": bytes(tiff),
        "jpeg 65,535 x 65,535": known["jpeg"][:sof] + b"\xff" * 4 + known["jpeg"][sof + 4 :],
        "bmp 2^31 wide": known["bmp"][:18] + b"\xff\xff\xff\x7f" + known["bmp"][22:],
        "bmp 2^31 high": known["bmp"][:22] + b"\x00\x00\x00\x80" + known["bmp"][26:],
        "webp 16,383 x 16,383": webp,
        "webp 16,383 x 16,383 with frames": webp + b"ANIM" + struct.pack("<I", 6) + bytes(6) + b"ANMF" + b"\xff" * 40,
        "ppm 10^9": b"P6\n1000000000 1000000000\n255\n" + bytes(100),
        "ppm 10^5000": b"P6\n" + b"9" * 5000 + b" 2\n255\n" + bytes(100),
        "sgi 65,535": known["sgi"][:6] + b"\xff" * 6 + known["sgi"][12:],
        "tga 65,535": known["tga"][:12] + b"\xff" * 4 + known["tga"][16:],
        "pcx 65,535": known["pcx"][:8] + b"\xff" * 4 + known["pcx"][12:],
        "qoi 2^32": b"qoif" + b"\xff" * 8 + b"\x03\0" + bytes(50),
        "psd 30,000": b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, *far, 8, 3) + bytes(12) + bytes(50),
        "psd 2^32 layers": b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 40, 40, 8, 3) + b"\0" * 8 + b"\xff" * 40,
        "jpeg 2000 2^32": known["jpeg2000"].replace(struct.pack(">II", 32, 48), b"\xff" * 8),
        "avif 2^32": known["avif"].replace(struct.pack(">II", 48, 32), b"\xff" * 8),
        "png of 1,000 text chunks that unpack to 1 MB": png_of(8, 8, b"")[:33]
        + chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 20))) * 1000,
    }


def nothing_like_it(random: Random) -> dict[str, bytes]:
    """Files that are no picture, or none that is read here."""
    import pickle
    import zipfile

    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../etc/cron.d/a", "x")
        archive.writestr("a.png", bytes(1 << 20))
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/><script>alert(1)</script></svg>'
    entities = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><svg>&b;</svg>'
    icon = BytesIO()
    Image.new("RGB", (32, 32)).save(icon, "ico")
    return {
        "nothing": b"",
        "a byte": b"\0",
        "text": b"hello",
        "html": b"<!doctype html><script>alert(1)</script>",
        "svg": svg,
        "entities": entities,
        "zip": packed.getvalue(),
        "pickle": pickle.dumps({"a": 1}) + b"cos\nsystem\n(S'id'\ntR.",
        "torch": b"PK\x03\x04" + bytes(100),
        "pdf": b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\n",
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 40 30\n%%EndComments\n(id) system\n%%EOF\n",
        "playlist": b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n",
        "concat": b"ffconcat version 1.0\nfile /etc/passwd\n",
        "vrt": b'<VRTDataset rasterXSize="4" rasterYSize="4"><SourceFilename>/etc/passwd</SourceFilename></VRTDataset>',
        "magick": b"push graphic-context\nviewbox 0 0 640 480\nfill 'url(https://127.0.0.1/x.jpg\"|id\")'\n",
        "elf": b"\x7fELF\x02\x01\x01" + bytes(60),
        "python": b"import os; os.system('id')",
        "json": b'{"picture": "x"}',
        "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(200),
        "icon": icon.getvalue(),
        "fits": b"SIMPLE  =                    T" + b" " * 2850,
        "mp4": b"\0\0\0\x18ftypmp42" + bytes(60),
        "wav": b"RIFF$\0\0\0WAVEfmt " + bytes(30),
        "png 1 x 1": picture("png", (1, 1)),
        "jpeg 1 x 40": picture("jpeg", (1, 40)),
        "gif 40 x 1": picture("gif", (40, 1)),
        "png, text before it": b"x" + picture(),
        **{f"begins as {kind}": picture(kind)[: random.randrange(4, 14)] for kind in FORMATS},
        **{f"{size} bytes of noise": random.randbytes(size) for size in (1, 2, 3, 7, 64, 1000, 65_536, 1_000_000)},
        **{f"noise as {kind}": picture(kind)[:12] + random.randbytes(3000) for kind in STRONG},
    }


Known = Callable[[bytes], bool]  # whether this is a picture after all


def pictures(random: Random, known: Known) -> Iterator[Hostile]:
    """Files that cannot be read, in forms and in JSON, to all that take any."""
    made = [(f"cut {kind}", picture(kind)[:at]) for kind in FORMATS for at in _places(picture(kind), random, 20)]
    made += [(f"cut {kind}, larger", large[:at]) for kind in STRONG for large in [picture(kind, (400, 300))]
             for at in _places(large, random, 12)]  # fmt: skip
    for place in range(420):
        kind = FORMATS[place % len(FORMATS)]
        how, data, _ = mutated(picture(kind), f"a.{kind}", random)
        made.append((f"{kind}, {how}", data))
    for place in range(120):
        kind = STRONG[place % len(STRONG)]
        made.append((f"{kind}, bits", BYTES["bits flipped"](picture(kind, (200, 150)), random)))
    refused = [(family, data) for family, data in made if not known(data)]
    refused += list(claims().items()) * 3 + list(nothing_like_it(random).items()) * 2
    for place, (family, data) in enumerate(refused):
        yield Hostile(f"picture: {family}", (_carried(data, place, random),), statuses=(422,))


def _carried(data: bytes, place: int, random: Random) -> bytes:
    verb = ("explain", "pictures", "predict", "localize", "explain", "look")[place % 6]
    if place % 3 == 0 and data:
        return posted(verb, {"picture": b64encode(data).decode(), "name": random.choice(("a.png", "b.jpg", ""))})
    return uploaded(verb, data, random.choice(("a.png", "a", "a.exe", "picture.jpg.php")))


def _places(data: bytes, random: Random, count: int) -> list[int]:
    """Where a file is cut: at its parts, and anywhere; not so late that nothing is missing."""
    parts = [match.start() for match in PLACES.finditer(data)]
    chosen = random.sample(parts, min(len(parts), count // 2))
    return sorted({*chosen, *(random.randrange(1, len(data)) for _ in range(count - len(chosen)))})


def names(random: Random) -> Iterator[Hostile]:
    """Of files that cannot be read: the answer has no folder in it, and nothing was opened."""
    long = "a" * 5000
    for place, name in enumerate(
        (*PATHS, long, f"../{long}", "/" * 500, "\\" * 500, "a\r\nX-Injected: 1", 'a"b', "\x1b[2J")
    ):
        never = ("etc/", "windows\\")
        data = random.choice((b"hello", b"", picture()[:20]))
        yield Hostile("name in JSON", (posted("explain", {"picture": b64encode(data or b"x").decode(), "name": name}),),
                      statuses=(422,), never=never)  # fmt: skip
        if "\r" not in name and '"' not in name:
            verb = ("explain", "pictures")[place % 2]
            yield Hostile("name in a form", (uploaded(verb, data, name),), statuses=(400, 422), never=never)
    for coded in ("utf-8''..%2f..%2fetc%2fpasswd", "cp037''a", "rot13''a", "os''a", "''", "utf-8''%ff%fe", "a" * 300):
        raw = f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=picture; filename*={coded}\r\n\r\nx\r\n".encode()
        yield Hostile("name in another charset", (form("explain", raw + END),), statuses=(400, 422))


def types(random: Random) -> Iterator[Hostile]:
    """Bodies that are called something else."""
    good = json.dumps({"picture_id": "example:coffee"}).encode()
    for kind in ("", "text/plain", "text/html", "application/x-www-form-urlencoded", "application/xml", "image/png",
                 "*/*",
                 "application/octet-stream", "multipart/mixed; boundary=a", "multipart/byteranges", "application/jsonp",
                 "application/json+x", "application", "/", ";", "json", "application/graphql", "text/json", "\xff",
                 "application/x-python-pickle", "a" * 5000, "application/json, multipart/form-data",
                 "multipart"):  # fmt: skip
        for verb in random.sample((*VERBS, "pictures"), 2):
            yield Hostile("type", (request("POST", f"/v1/{verb}", good, Content_Type=kind),), statuses=(415,))
    yield Hostile("no type", (request("POST", "/v1/explain", good),), statuses=(415,))
    for kind in ("multipart/form-data", "multipart/form-data; boundary=", 'multipart/form-data; boundary=""',
                 f"multipart/form-data; boundary={'b' * 300}", "multipart/form-data; boundary=\xe9",
                 "multipart/form-data; charset=utf-8", "multipart/form-data; boundary",
                 "multipart/form-data; boundary= ",
                 'multipart/form-data; boundary="a', "multipart/form-data; boundary=a; boundary=b",
                 "multipart/form-data; boundary=another", "multipart/form-data; boundary=\\r\\n"):  # fmt: skip
        yield Hostile(
            "boundary", (form("explain", part("picture", picture(), "a.png") + END, kind),), statuses=(400, 422)
        )
    for charset in ("utf-16", "utf-7", "cp037", "rot13", "unicode_escape", "idna", "hex", "undefined", "os", "../../x"):
        kind = f"multipart/form-data; boundary={BOUNDARY}; charset={charset}"
        body = part("net", b"\\ud800\x2f", None) + part("picture", picture(), "a.png") + END
        yield Hostile("charset", (form("explain", body, kind),), statuses=(400, 422))


def forms(random: Random) -> Iterator[Hostile]:
    """Forms that are none, or hold what they should not."""
    file, text = part("picture", picture(), "a.png"), part("output", b"json")
    good = text + file + END
    odd = {
        "two files": file * 2 + END,
        "thousands of fields": b"".join(part(f"f{n}", b"x") for n in range(5000)) + file + END,
        "thousands of one field": part("method", b"gradcam") * 3000 + file + END,
        "field of 2 MB": part("net", b"a" * (2 << 20)) + file + END,
        "field of 300 letters": part("net", b"a" * 300) + file + END,
        "picture as text": part("picture", b64encode(picture())) + END,
        "file as another": part("net", picture(), "a.png") + END,
        "file twice, as text too": part("picture", b"x") + file + END,
        "no name": part(None, picture(), "a.png") + END,
        "empty name": part("", b"x") + file + END,
        "no disposition": f"--{BOUNDARY}\r\nContent-Type: image/png\r\n\r\n".encode() + picture() + b"\r\n" + END,
        "no end": file,
        "only the end": END,
        "nothing": b"",
        "no line ends": good.replace(b"\r\n", b"\n"),
        "boundary without dashes": good.replace(b"--" + BOUNDARY.encode(), BOUNDARY.encode()),
        "part that never starts": f"--{BOUNDARY}\r\nContent-Disposition: form-data; name=picture".encode(),
        "header of 100 kB": part("picture", picture(), "a.png", f"X-A: {'a' * 100_000}\r\n") + END,
        "a hundred headers": part("picture", picture(), "a.png", "X-A: b\r\n" * 100) + END,
        "header without a colon": part("picture", picture(), "a.png", "X-A\r\n") + END,
        "NUL in a header": part("pic\0ture", picture(), "a.png") + END,
        "nested": part("picture", good, None, f"Content-Type: multipart/mixed; boundary={BOUNDARY}x\r\n") + END,
        "a value twice": part("net", b"efficientnet_lite0") * 2 + file + END,
        "unknown field": part("nets", b"efficientnet_lite0") + file + END,
        "picture and its id": part("picture_id", b"example:coffee") + file + END,
        "text and picture": part("text", b"a film") + file + END,
        "lone surrogate": part("net", b"\xed\xa0\x80") + file + END,
        "not UTF-8": part("net", b"\xff\xfe\xfd") + file + END,
        "no number": part("top", b"five") + file + END,
        "other digits": part("top", "٥".encode()) + file + END,
        "only dashes": b"-" * 100_000,
        "only line ends": b"\r\n" * 100_000,
        "almost boundaries": b"\r\n--" + BOUNDARY[:-1].encode() * 20_000,
    }
    for what, body in odd.items():
        for verb in ("predict", "explain") if what != "text and picture" else ("localize", "localize"):
            if what not in ("no number", "other digits") or verb == "predict":
                yield Hostile(f"form: {what}", (form(verb, body),), statuses=(400, 404, 422))
    whole = text + part("picture", picture("jpeg"), "a.jpg")
    for at in random.sample(range(len(whole)), 120):
        yield Hostile("form: cut", (form("explain", whole[:at]),), statuses=(400, 422))
    bad = text + part("picture", b"no picture at all", "a.png") + END
    for _ in range(120):
        how, change = random.choice(list(BYTES.items()))
        yield Hostile(f"form: {how}", (form("explain", change(bad, random)),), statuses=(400, 422))


def broken_json(random: Random) -> Iterator[Hostile]:
    good = json.dumps({"picture_id": "example:coffee", "method": ["gradcam"], "target": ["top1"], "fit": None}).encode()
    odd = [
        b"", b" ", b"null", b"[]", b"1", b'"a"', b"true", b"{", b"}", b"[" * 100_000, b'{"a":' * 100_000, b"{]", b"{,}",
        b"{'picture_id': 'example:coffee'}", b'{"picture_id": "example:coffee",}', b"\xef\xbb\xbf" + good, b"\xff\xfe",
        good.decode().encode("utf-16"), b'{"picture_id": "\\ud800"}', b'{"picture_id": "\\u00"}', b"NaN", b"-", b"1e",
        b'{"picture_id": "example:coffee"} {}', b'{"picture_id": undefined}', b"/* a */ {}", b'{"a": 01}', b'{"a": +1}',
        b'{"picture_id": "\n"}', b"{" + b'"a":1,' * 100_000 + b'"b":1}', b'{"__proto__": {"x": 1}}', good * 2,
        b"\0" * 1000,
        b'{"top": ' + b"9" * 100_000 + b"}", b'{"top": 1e999999999}', b'{"top": -1e-999999999}', b'{"": ""}',
        b'{"picture_id": {"$ne": null}}', b"--- !!python/object/apply:os.system [id]", b"<a/>",
        b"picture_id=example:coffee",
    ]  # fmt: skip
    for body in odd:
        for verb in random.sample((*VERBS, "pictures"), 2):
            yield Hostile("json", (posted(verb, body),), statuses=(400, 422))
    for at in range(len(good)):
        yield Hostile("json: cut", (posted("explain", good[:at]),), statuses=(400, 422))
    for word in (
        "=",
        "====",
        "a",
        "abc",
        "a b=",
        "YWJj\n",
        "YW-j",
        "YW_j",
        "é",
        "\0",
        "data:image/png;base64,AAAA",
        "A" * 99_999,
    ):
        yield Hostile("json: no base64", (posted("explain", {"picture": word}),), statuses=(422,))


WRONG: dict[str, tuple[Any, ...]] = {
    "string": (5, 1.5, True, [], ["a"], {}, {"a": "b"}, ""),
    "integer": ("5", 1.5, True, [], [5], {}, -1, -(10**30), 10**30, 10**400, "NaN", "", 2**63, 2**31),
    "number": ("0.5", True, [], {}, float("nan"), float("inf"), -float("inf"), -1e308, "1e999", -1, 10**400),
    "boolean": ("true", 1, 0, 1.0, "", [], {}, "maybe"),
    "array": ("a", 5, {}, [5], [None], [[]], [[["a"]]], [""], ["a" * 300], ["a"] * 200, [{}], True),
}
FREE = ("name", "text")  # whose letters mean nothing here


def fields(random: Random, api: dict[str, Any]) -> Iterator[Hostile]:
    """Wrong types and values for every field of every verb, by what the service says of itself."""
    for verb in (*VERBS, "zoom", "search", "pictures"):
        content = api["paths"][f"/v1/{verb}"]["post"]["requestBody"]["content"]
        known = content["application/json"]["schema"]["properties"]
        picture_given = {} if verb == "pictures" else {"picture_id": "example:rocket"}
        for name, schema in known.items():
            kinds = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
            kind = kinds[0].get("type", "string")
            wrong = list(WRONG[kind])
            if kind == "string" and name not in FREE:
                wrong += random.sample(PATHS, 10 if name not in ("net", "picture_id") else len(PATHS))
            if kind == "string":
                wrong += ["a" * 100_000 if name != "picture" else "a" * 99_997]
            if kind == "array":
                wrong += [[word] for word in random.sample(PATHS, 24)]
            wrong = [value for value in wrong if not (name == "name" and value == "")]
            for value in wrong:
                body = picture_given | {name: value}
                yield Hostile(f"field: {verb}.{name}", (posted(verb, body),), statuses=(400, 404, 422))
        for name in (
            "nets",
            "max_pixels",
            "__class__",
            "model_config",
            "path",
            "url",
            "file",
            "device",
            "token",
            "",
            "PICTURE",
        ):
            body = picture_given | {name: "x"}
            yield Hostile(f"field: {verb}, unknown", (posted(verb, body),), statuses=(422,))


def picture_ids(random: Random) -> Iterator[Hostile]:
    for name in (*PATHS, "example:", "example:../coffee", "example:coffee.png", "example:chelsea.png", "EXAMPLE:coffee",
                 "example:coffee\0", "example:/etc/passwd", "A" * 22, "null", "undefined", "0"):  # fmt: skip
        yield Hostile("picture_id", (posted("explain", {"picture_id": name}),), statuses=(400, 404, 422))


def paths(random: Random) -> Iterator[Hostile]:
    """Addresses of nothing, and of what is not to be had."""
    places = (
        "/page/../application.py", "/page/..%2fapplication.py", "/page/%2e%2e/application.py",
        "/page/%2e%2e%2fguard.py",
        "/page/..%5c..%5cguard.py", "/page//etc/passwd", "//etc/passwd", "/page/%00", "/page/index.html%00.js",
        "/page/",
        "/page/.", "/page/index.html/..", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
        "/..;/etc/passwd", "/static/../../etc/passwd", "/page/....//guard.py", "/page/%252e%252e%252fguard.py", "/docs",
        "/redoc", "/openapi.json/", "/v1", "/v1/", "/v1/nothing", "/v1//models", "/v1/models/../explain", "/V1/MODELS",
        "/v1/models%2f", "/v1/models;a=b", "/.git/config", "/.env", "/wp-login.php", "/cgi-bin/x.sh", "/admin",
        "/%ff%fe",
        "/%", "/%zz", "/%c0%ae%c0%ae/etc/passwd", "/\\..\\..\\etc\\passwd", "http://example.org/", "http://127.0.0.1/v1",
        "https://127.0.0.1:1/", "file:///etc/passwd", "*", "healthz", "/healthz%00", "/healthz/", "/healthz%0d%0aX-A:1",
        "/page/index.html%0d%0aSet-Cookie:a=b", "/?" * 200, "/page/" + "a" * 20_000, "/" + "a/" * 10_000, "/metrics/..",
    )  # fmt: skip
    for place in places:
        if place.startswith("/?"):
            continue
        yield Hostile("path", (request("GET", place),), statuses=(400, 404, 405))
    for name in PATHS:
        plain = "".join(c if c.isascii() and c.isalnum() else "".join(f"%{b:02x}" for b in c.encode()) for c in name)
        for route in ("/v1/pictures/{}/preview", "/v1/pictures/{}/tiles/0/0/0", "/page/{}", "/v1/labels?net={}"):
            yield Hostile("path, coded", (request("GET", route.format(plain)),), statuses=(404, 422))
        yield Hostile("path, coded", (request("DELETE", f"/v1/pictures/{plain}"),), statuses=(404, 405, 422))
    for key in ("example:coffee", "example:nothing"):
        for place in ("-1/0/0", "99/0/0", "0/9/0", "a/b/c", "1e9/0/0", "9999999999999999999999/0/0", "0/0/16777217",
                      "NaN/0/0",
                      "0x1/0/0", "1.5/0/0", "%31%30/%2d1/0", "+/0/0", "9/1000/1000",
                      "٣/-1/0".encode().hex()):  # fmt: skip
            yield Hostile("tile", (request("GET", f"/v1/pictures/{key}/tiles/{place}"),), statuses=(404, 422))
    for query in (
        "",
        "?net=",
        "?nets=a",
        f"?net={'a' * 5000}",
        "?net=a&net=b",
        "?net[]=a",
        "?net=%ff",
        "?net=%00",
        "?;",
        "?net",
    ):
        yield Hostile("query", (request("GET", f"/v1/labels{query}"),), statuses=(404, 422))


def hosts(random: Random) -> Iterator[Hostile]:
    """Not meant for this service; a name that leads to this machine is what a page on the internet would have."""
    wrong = (
        "evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "evil@127.0.0.1",
        "127.0.0.2",
        "a:b@localhost", "127.0.0.1@evil.example", "127.0.0.1/evil", "127.0.0.1?x", "127.0.0.1#x", "[::1", "::1]",
        "[::2]",
        "[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "[", "[]", "0", "0.0.0.0", "127.1", "2130706433", "0x7f000001",
        "0177.0.0.1",
        "localhost.", "localhost:a", "localhost:-1", "localhost:999999", "127.0.0.1,evil.example", "127.0.0.1 evil",
        "lócalhost",
        "xn--lcalhost-e1a", "*", "null", "file://", "http://127.0.0.1", "127.0.0.1\\evil", "%31%32%37.0.0.1",
        "a" * 5000, "",
    )  # fmt: skip
    for place, name in enumerate(wrong):
        path = ("/v1/models", "/", "/healthz", "/page/index.html")[place % 4]
        yield Hostile("host", (request("GET", path, Host=name),), statuses=(400, 421))
        yield Hostile("host", (posted("explain", {"picture_id": "example:coffee"}, Host=name),), statuses=(400, 421))
    for lines in ((("Host", HOST), ("Host", HOST)), (("Host", HOST), ("Host", "evil.example")), (("Host", " "),)):
        yield Hostile("hosts", (request("GET", "/v1/models", headers=lines),), statuses=(400, 421))
    yield Hostile("no host", (b"GET /v1/models HTTP/1.1\r\n\r\n",), statuses=(400, 421))
    yield Hostile("no host", (b"GET / HTTP/1.0\r\n\r\n",), statuses=(400, 421))
    yield Hostile("forwarded", (request("GET", "/", Host="evil.example", X_Forwarded_Host=HOST),), statuses=(421,))


def origins(random: Random) -> Iterator[Hostile]:
    """Pages of somebody else."""
    good = {"picture_id": "example:coffee"}
    for origin in ("null", "https://evil.example", "http://evil.example", "http://127.0.0.1:1",
                   "http://localhost:3000", "*", "",
                   "https://127.0.0.1", "http://127.0.0.1.evil.example", "http://127.0.0.1@evil.example", "file://",
                   "a",
                   "chrome-extension://abc", "http://127.0.0.1/", "http://127.0.0.1:0", "ftp://127.0.0.1", "\xff", "http://[::1]",
                   "http://127.0.0.1, http://127.0.0.1", "x" * 5000):  # fmt: skip
        if origin == "http://127.0.0.1/":
            continue
        for raw in (
            posted("explain", good, Origin=origin),
            request("GET", "/v1/models", Origin=origin),
            request("OPTIONS", "/v1/explain", Origin=origin, Access_Control_Request_Method="POST"),
        ):
            yield Hostile("origin", (raw,), statuses=(403,))
    for site in ("cross-site", "same-site", "Cross-Site"):
        for mode in ("no-cors", "cors", "navigate", "websocket", ""):
            yield Hostile("site", (posted("explain", good, Sec_Fetch_Site=site, Sec_Fetch_Mode=mode),), statuses=(403,))
            raw = request("GET", "/v1/models", Sec_Fetch_Site=site, Sec_Fetch_Mode=mode)
            yield Hostile("site", (raw,), statuses=(403,))
    two = (("Origin", f"http://{HOST}"), ("Origin", "https://evil.example"))
    yield Hostile("origins", (request("GET", "/v1/models", headers=two),), statuses=(403,))


def methods(random: Random) -> Iterator[Hostile]:
    for method in (
        "TRACE",
        "CONNECT",
        "PUT",
        "PATCH",
        "DELETE",
        "OPTIONS",
        "PROPFIND",
        "BREW",
        "get",
        "A" * 50,
        "X" * 5000,
        "*",
    ):
        for path in ("/", "/v1/explain", "/v1/models", "/healthz", "/page/index.html"):
            yield Hostile("method", (request(method, path),), statuses=(400, 405))
    for path in ("/v1/explain", "/v1/pictures", "/v1/look"):
        yield Hostile("method", (request("GET", path),), statuses=(405,))
        yield Hostile("method", (request("HEAD", path),), statuses=(405,), head=True)
    for method in ("GET", "POST", "DELETE"):
        yield Hostile("method", (request(method, "/nothing"),), statuses=(404,))


def heads(random: Random) -> Iterator[Hostile]:
    """Lines that are too many, too long, or no HTTP."""
    get = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    odd = {
        "many headers": get + "".join(f"X-{n}: {'a' * 40}\r\n" for n in range(3000)) + "\r\n",
        "many of one header": get + "Cookie: a=b\r\n" * 20_000 + "\r\n",
        "header of 1 MB": get + f"X-A: {'a' * (1 << 20)}\r\n\r\n",
        "name of 1 MB": get + f"{'a' * (1 << 20)}: b\r\n\r\n",
        "line of 1 MB": "GET /" + "a" * (1 << 20) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "no colon": get + "X\r\n\r\n",
        "space before the colon": get + "X : a\r\n\r\n",
        "folded": get + " folded\r\n\r\n",
        "NUL": get + "X: a\0b\r\n\r\n",
        "NUL in the path": "GET /\0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "bare CR": get + "X: a\rb\r\n\r\n",
        "no version": "GET /\r\n\r\n",
        "version 9": "GET / HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
        "version 2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "version of letters": "GET / HTTP/one\r\nHost: 127.0.0.1\r\n\r\n",
        "spaces": "GET  /  HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "two paths": "GET / / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "letters of others": "GET /\xe9 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + "\x00" * 32 + "\r\n\r\n",
        "SSH": "SSH-2.0-OpenSSH_9.0\r\n\r\n",
        "SMTP": "EHLO a\r\nMAIL FROM:<a>\r\n\r\n",
        "redis": "*1\r\n$8\r\nFLUSHALL\r\n\r\n",
        "proxy": "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET / HTTP/1.1\r\n\r\n",
        "an answer": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    }
    for what, text in odd.items():
        yield Hostile(f"head: {what}", (text.encode("latin-1"),), statuses=(400, 421))
    for _ in range(60):
        noise = random.randbytes(random.randrange(1, 400))
        yield Hostile("head: noise", (noise.replace(b"\r", b"") + b"\r\n\r\n",), statuses=(400, 404, 405, 421))
    good = request("GET", "/nothing-here", Accept="*/*")
    for _ in range(80):
        raw = BYTES["bits flipped"](good[:-4], random) + b"\r\n\r\n"
        yield Hostile("head: bits", (raw,), statuses=(400, 403, 404, 405, 421))


def lengths(random: Random) -> Iterator[Hostile]:
    """Bodies whose length is a lie."""
    good, kind = json.dumps({"nothing": 1}).encode(), ("Content-Type", "application/json")

    def told(*lines: tuple[str, str], body: bytes = good) -> bytes:
        return request("POST", "/v1/explain", body, (kind, *lines))

    for length in ("-1", "+5", "1.5", "a", "0x10", "1e3", "", "5 5", "5,6", "9" * 30, "٣", "5;5", "\t"):
        yield Hostile("length", (told(("Content-Length", length)),), statuses=(400, 408, 413, 422))
    yield Hostile("lengths", (told(("Content-Length", "5"), ("Content-Length", "6")),), statuses=(400,))
    for much in (2**28 + 1, 10**9, 2**31, 2**63, 10**18):
        yield Hostile("too long", (told(("Content-Length", str(much))),), statuses=(413,))
        expecting = told(("Content-Length", str(much)), ("Expect", "100-continue"), body=b"")
        yield Hostile("too long, asked before", (expecting,), statuses=(413,))
    both = ("Content-Length", "5"), ("Transfer-Encoding", "chunked")
    for lines in (both, both[::-1], (("Content-Length", "0"), both[1]), (both[1], ("Content-Length", "100"))):
        yield Hostile("two lengths", (told(*lines, body=b'5\r\n{"a":\r\n3\r\n 1}\r\n0\r\n\r\n'),), statuses=(400,))
    for coding in (
        "gzip",
        "chunked, gzip",
        "gzip, chunked",
        "identity",
        "xchunked",
        "chunked, chunked",
        "chunked\0",
        "chunk",
    ):
        yield Hostile("coding", (told(("Transfer-Encoding", coding), body=b"0\r\n\r\n"),), statuses=(400, 501))
    chunks = (
        b"zz\r\n\r\n", b"-1\r\n\r\n", b"5\r\nab\r\n0\r\n\r\n", b"ffffffffffffffffffff\r\n", b"0x5\r\nabcde\r\n",
        b"\r\n\r\n", b"5;" +
        b"a" * 100_000 + b"\r\nabcde\r\n0\r\n\r\n", b"1\r\na\r\n" * 3 + b"x\r\n", b"5\nabcde\n0\n\n",
        b" 5\r\nabcde\r\n0\r\n\r\n",
        b"0\r\nX-Trailer: " + b"a" * 100_000 + b"\r\n\r\n", b"1\r\nab\r\n0\r\n\r\n", b"g\r\n", b"5\r\nabcdeX\r\n",
    )  # fmt: skip
    for body in chunks:
        yield Hostile("chunks", (told(("Transfer-Encoding", "chunked"), body=body),), statuses=(400, 408))
    many = b"".join(b"1\r\n%c\r\n" % letter for letter in b'{"nothing": 1}') + b"0\r\n\r\n"
    yield Hostile("a letter a chunk", (told(("Transfer-Encoding", "chunked"), body=many),), statuses=(422,))
    for expects in ("100-continue", "200-ok", "x" * 500):
        yield Hostile("expects", (told(("Expect", expects)),), statuses=(417, 422))
    for count in (2, 5, 20):
        raw = posted("explain", {"nothing": 1}) + request("GET", "/nothing") * (count - 1)
        yield Hostile("pipelined", (raw,), answers=count, statuses=(404, 422))
    for encoding in ("gzip", "br", "deflate", "zstd"):
        packed = zlib.compress(good)
        raw = request("POST", "/v1/explain", packed, (kind, ("Content-Encoding", encoding)))
        yield Hostile("packed", (raw,), statuses=(400, 415, 422))


def upgrades(random: Random) -> Iterator[Hostile]:
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    for kind in ("websocket", "h2c", "TLS/1.3", "nothing", "WebSocket"):
        for path in ("/v1/explain", "/ws", "/v1/pictures", "/socket.io/"):
            raw = request(
                "GET", path, Connection="Upgrade", Upgrade=kind, Sec_WebSocket_Key=key, Sec_WebSocket_Version="13"
            )
            yield Hostile("upgrade", (raw,), statuses=(404, 405))


def slow(random: Random) -> Iterator[Hostile]:
    """Who never comes to an end: told so, or let go of."""
    good = uploaded("explain", picture("jpeg"))
    head = good[: good.index(b"\r\n\r\n") + 4]
    for size in (1, 4, 20, len(head) - 2):
        yield Hostile("slow: head stops", (head[:size],), None, (408,))
    yield Hostile("slow: says nothing", (b"",), None, (408,))
    for step in (1, 3, 7):
        pieces = tuple(head[at : at + step] for at in range(0, 40 * step, step))
        yield Hostile("slow: letter by letter", pieces, None, (408,), pause=0.25)
    for share in (0.1, 0.5, 0.9, 0.999):
        yield Hostile("slow: body stops", (good[: len(head) + int(share * (len(good) - len(head)))],), 1, (408,))
        text = posted("explain", {"picture_id": "example:coffee", "target": ["top1"] * 9})
        yield Hostile("slow: JSON stops", (text[: int(len(text) - 20 * (1 - share)) - 1],), 1, (408,))
    yield Hostile("slow: body never begins", (head,), 1, (408,))
    trickle = tuple(bytes([letter]) for letter in good[len(head) : len(head) + 40])
    yield Hostile("slow: body letter by letter", (head, *trickle), 1, (408,), pause=0.25)
    chunked = request("POST", "/v1/explain", b"", Content_Type="application/json", Transfer_Encoding="chunked")
    yield Hostile("slow: chunks", (chunked, *(b"1\r\n[\r\n",) * 40), 1, (408,), pause=0.25)
    yield Hostile("slow: asked to go on", (head[:-2] + b"Expect: 100-continue\r\n\r\n",), 1, (408,))
    nowhere = request("POST", "/nothing", b"x", Content_Length="1000000")
    yield Hostile("slow: body for nobody", (nowhere, *(b"x",) * 30), 1, (404,), pause=0.25)


def cut(random: Random) -> Iterator[Hostile]:
    """Connections that end in the middle of anything."""
    good = uploaded("explain", picture("jpeg", (300, 200)))
    for _ in range(60):
        yield Hostile("cut: while it is said", (good[: random.randrange(1, len(good))],), None, wait=False)
    for verb in ("explain", "explain", "localize", "predict", "sanity", "look") * 4:
        raw = posted(verb, {"picture_id": "example:rocket", "output": "json"})
        yield Hostile("cut: before the answer", (raw,), None, wait=False)
    for _ in range(12):
        yield Hostile("cut: at once", (b"",), None, wait=False)


FAMILIES: tuple[Callable[[Random], Iterator[Hostile]], ...] = (
    names, types, forms, broken_json, picture_ids, paths, hosts, origins, methods, heads, lengths, upgrades, cut,
)  # fmt: skip
