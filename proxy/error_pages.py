"""What each error code means and what to do about it: the page that an error's `doc_url` leads to, and docs/errors/ (`make docs`)."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import STATUS


@dataclass(frozen=True, slots=True)
class Page:
    """One code: when it comes, and what to do."""

    code: str
    when: str
    do: str

    def markdown(self) -> str:
        return f"# {self.code}\n\nHTTP status {STATUS[self.code]}.\n\n**When.** {self.when}\n\n**What to do.** {self.do}\n"


_TEXTS = {
    "invalid_request": (
        (
            "The request can't be used as it is: its body is no JSON object in UTF-8, is nested deeper than 128 levels, has more than "
            "4096 fields at its top level, names a field twice, lacks a field or has one of the wrong type; or a header can't be kept. "
            "Or it asks for more than its key may: more answers (`n`), a larger image (`source: policy`). A provider's own 400 has "
            "this status too, with the provider's words and `source: provider`."
        ),
        "Read `message` and `param`: they name the field or header.",
    ),
    "content_blocked": (
        "A rule found content in the request that must not leave. No rule of spangate's own does so yet; a plug-in's may.",
        "Take the content out, or ask whoever runs the gateway about the rule.",
    ),
    "invalid_api_key": (
        (
            "The key is missing, unknown, revoked or expired; callers aren't told which of them. A gateway without teams answers this to "
            "requests that don't come from a local program."
        ),
        (
            "Send `Authorization: Bearer sg-…` with a key from `spangate keys new`; `spangate keys list` shows what is valid. The call's "
            "trace says what was wrong, in its event `key.refused`: `spangate.key.reason`, and of a key that has expired whose it is."
        ),
    ),
    "tool_not_allowed": ("The request offers a tool that this key may not use.", "Leave the tool out, or ask for it to be allowed."),
    "operation_not_allowed": ("This key may not use this operation.", "Use another key, or ask for the operation to be allowed."),
    "stopped": (
        (
            "Whoever runs the gateway has stopped the team, the key, the model or the provider, with `spangate stop`. `stopped` in the "
            "error says which switch it is, and since when. Calls that were under way then go on to their end."
        ),
        (
            "Trying again changes nothing until it is resumed: ask whoever runs the gateway. They see what is stopped with "
            "`spangate stop`, and end it with `spangate resume`."
        ),
    ),
    "model_not_found": (
        "There is no such model, or this key may not use it; both get the same words.",
        "`GET /v1/models` lists what the key may use. `message` names the nearest one.",
    ),
    "not_found": (
        "There is nothing at this path, or what it leads to is not configured: usage, or the admin token.",
        "A client's base_url ends in `/v1`, such as http://127.0.0.1:8484/v1.",
    ),
    "method_not_allowed": ("The path exists, the method doesn't fit.", "The header `allow` names the methods that do."),
    "request_timeout": (
        "The head or the body of the request did not arrive in time (`server.header_timeout`, `server.body_timeout`).",
        "Send it again on a better line, or raise the limit.",
    ),
    "request_too_large": (
        "The body is larger than `server.max_body`. The connection is closed.",
        "Send less, or raise the limit.",
    ),
    "unsupported_encoding": ("The request body is compressed.", "Send it without Content-Encoding."),
    "rate_limit_exceeded": (
        (
            "A limit said no: the gateway's, or a provider's own that is used up (`source: policy`), or the provider (`source: provider`). "
            "Or too many requests with a wrong key came from this address. Of a limit of the gateway's, `limit` in the error says which, "
            "whose, in which window, and how much is used and held; the headers `ratelimit` and `x-ratelimit-*`, which answers have too, "
            "what is left and when there is more."
        ),
        "Wait as long as the header `retry-after` says. Who sends less at once, or asks for shorter answers, has to wait less often.",
    ),
    "budget_exceeded": (
        (
            "A budget is used up, or has less left than this call may take: its input, and the answer up to `max_tokens`, all counted "
            "before it is sent. `budget` in the error says which, whose, how much of it is used and held by calls under way, and when it "
            "begins anew (`resets_at`). Where that is within a minute, `retry-after` says so. Or nobody knows what the model costs, and "
            "the budget is in US dollars."
        ),
        (
            "If `message` says that there is no room for this call, a shorter one may fit, with a smaller `max_tokens`, or this one later, "
            "when calls under way have ended. Else wait for the reset, or ask for a larger budget: trying again sooner changes nothing "
            "(`x-should-retry: false`)."
        ),
    ),
    "headers_too_large": ("The request's head is larger than `server.max_header`.", "Send fewer or shorter headers."),
    "internal_error": (
        "A defect of the gateway.",
        "Its log has the reason under the `request_id`; please report it.",
    ),
    "upstream_error": (
        "The provider answered with an error or with something that is no answer. Its refusal of the gateway's own key counts here.",
        "Try again later. `message` holds the provider's words where they can be shown.",
    ),
    "upstream_unreachable": (
        "No connection to the provider could be made.",
        "Whoever runs the gateway: check the provider's `base_url`, the name look-up and the network.",
    ),
    "upstream_incomplete": (
        "The provider's answer stopped before its end. In a stream this is the last event, without `[DONE]`.",
        "What came is incomplete: ask again.",
    ),
    "overloaded": (
        "The gateway has as many calls or request bodies in flight as `server.max_calls` and `server.max_bodies` allow.",
        "Try again after `retry-after`.",
    ),
    "draining": ("The gateway is shutting down.", "Send the call to another instance, or again after the restart."),
    "state_unavailable": (
        "A rule needs the shared counters, or a query the usage database, and that can't be reached, or one counter is none.",
        "Try again; whoever runs the gateway: see `/readyz`, which says why.",
    ),
    "upstream_timeout": (
        "The provider took longer than `time_limit` allows: to be reached, to begin, between two pieces, or in total.",
        "Try again, or raise the limit under `models`.",
    ),
}

PAGES = {code: Page(code, when, do) for code, (when, do) in _TEXTS.items()}


def listed() -> str:
    """All pages, by status."""
    pages = sorted(PAGES.values(), key=lambda page: STATUS[page.code])
    return "# Errors\n\n" + "".join(f"- {STATUS[page.code]} [{page.code}](/docs/errors/{page.code})\n" for page in pages)
