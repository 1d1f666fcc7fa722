"""access: what a caller may ask for: models, operations, tools, and how much of an answer.

A model that doesn't exist and one that isn't allowed get the same words, so that nobody learns what others use. What policies route to
later is the operator's choice and is not asked here. A tool or an operation that isn't allowed is refused by its name; an answer is
capped rather than refused.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, WithJsonSchema

from ..call.amounts import Number
from ..call.call import Call, Op
from ..call.chain import Next
from ..call.errors import Refused, model_not_found, shortened
from ..call.events import Event
from ..call.rules import fits_glob
from .content import MOST_IMAGES, after_look, content_of, tool_names, unseen
from .output_cap import capped, over, telling

_SIZE = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})")


def _image_size(value: object) -> str:
    if not isinstance(value, str) or not _SIZE.fullmatch(value):
        raise ValueError("must be a width and a height in pixels, such as 1024x1024")
    return value


ImageSize = Annotated[
    str, BeforeValidator(_image_size), WithJsonSchema({"type": "string", "pattern": f"^{_SIZE.pattern}$", "examples": ["2048x2048"]})
]


class Part(BaseModel):
    """A mapping of the rule."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Tools(Part):
    """Which tools a request may offer the model, by name; the provider's own by their type, such as `web_search`."""

    allow: tuple[str, ...] = ("*",)
    """Names, or patterns with `*`. All by default."""
    deny: tuple[str, ...] = ()
    """The same, of what is allowed otherwise."""

    @property
    def everything(self) -> bool:
        return "*" in self.allow and not self.deny

    def allows(self, tool: str) -> bool:
        return any(fits_glob(each, tool) for each in self.allow) and not any(fits_glob(each, tool) for each in self.deny)


class Most(Part):
    """How much a request may ask for."""

    max_tokens: Annotated[Number | None, Field(ge=1)] = None
    """Tokens of an answer. One that asks for more, or doesn't say, is capped here, and told so in `x-spangate-capped`."""
    n: Annotated[Number | None, Field(ge=1)] = None
    """Answers to one request. More are refused."""
    image: ImageSize | None = None
    """Width and height of an image that is sent, either way round, as in `2048x2048`. A larger one is refused, and so is one whose size
    can't be told: an address, or another format than PNG, JPEG, GIF and WebP."""


class Access(BaseModel):
    """What a caller may ask for."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
    stage: ClassVar[int] = 10

    models: tuple[str, ...] = ("*",)
    """Names, or patterns with `*`; a call for any other name is answered as if it didn't exist."""
    operations: tuple[Op, ...] | None = None
    """What may be done: `chat`, `completions`, `embeddings`. All by default."""
    tools: Tools = Tools()
    """Which tools a request may offer the model."""
    max: Most = Most()
    """How much a request may ask for."""

    _refusal: Callable[[Call], Refused] | None = PrivateAttr(default=None)

    def allows(self, model: str) -> bool:
        return any(fits_glob(pattern, model) for pattern in self.models)

    @property
    def everything(self) -> bool:
        """It refuses nothing and caps nothing."""
        return "*" in self.models and self.operations is None and self.tools.everything and self.max == Most()

    def refusing(self, refusal: Callable[[Call], Refused]) -> Access:
        """The same rule, which refuses a model in these words: they know what else the caller may use."""
        rule = self.model_copy()
        rule._refusal = refusal
        return rule

    def __call__(self, call: Call, next: Next) -> AsyncIterator[Event]:
        if self.max.image is not None and unseen(call):
            return after_look(call, self, next)
        if not self.allows(call.model):
            call.notes.add("access.refused", model=call.model)
            raise self._refusal(call) if self._refusal is not None else model_not_found(call.model, self.models)
        if self.operations is not None and call.op not in self.operations:
            may = f"It may use: {', '.join(self.operations)}." if self.operations else "It may use none."
            told = Refused(f"This key may not use {call.op}. {may}", code="operation_not_allowed")
            raise _noted(call, told, operation=call.op)
        if not self.tools.everything:
            self._check_tools(call)
        most = self.max
        if most.n is not None and call.head.n > most.n:
            said = f"'n' must be at most {most.n} for this key."
            if call.op == "completions":
                said = f"This key may ask for at most {most.n} answers in one request: 'n' or 'best_of', times the prompts."
            raise _noted(call, Refused(said, code="invalid_request", param="n"), n=call.head.n)
        if most.image is not None:
            self._check_images(call, most.image)
        if most.max_tokens is not None and over(call, most.max_tokens):
            call.notes.add("access.capped", verdict="modify", asked=call.head.output_cap or 0, output_cap=most.max_tokens)
            return telling(capped(call, most.max_tokens), next, most.max_tokens)
        return next(call)

    def _check_tools(self, call: Call) -> None:
        try:
            names = tool_names(call.body)
        except ValueError:
            told = "'tools' must be a list of tools, each with a name: this key may not offer every tool."
            raise _noted(call, Refused(told, code="invalid_request", param="tools"), tool="") from None
        for name in names:
            if not self.tools.allows(name):
                shown = shortened(name)
                told = f"This key may not offer the tool {shown!r}."
                raise _noted(call, Refused(told, code="tool_not_allowed", param="tools"), tool=shown)

    def _check_images(self, call: Call, most: str) -> None:
        largest = sorted(map(int, most.split("x")))
        content = content_of(call)
        if content.more:
            told = f"This key may send at most {MOST_IMAGES} images, so that their size can be told."
            raise _noted(call, Refused(told, code="invalid_request", param="messages"), image="")
        for image in content.images:
            size = sorted((image.width, image.height))
            shown = f"{image.width}x{image.height}" if size[0] else ""
            if not shown:
                told = f"This key may send images of at most {most} pixels, and the size of one can't be told: send it as a data URL "
                told += "of a PNG, JPEG, GIF or WebP, not as an address."
            elif any(side > may for side, may in zip(size, largest, strict=True)):
                told = f"An image of {shown} pixels is larger than this key may send: at most {most}."
            else:
                continue
            raise _noted(call, Refused(told, code="invalid_request", param="messages"), image=shown)


def _noted(call: Call, refused: Refused, **figures: object) -> Refused:
    call.notes.add("access.refused", **figures)
    refused.source = "policy"
    return refused
