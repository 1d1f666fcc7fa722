"""What the ledger in memory counts in: cells, and the three kinds of counters made of them. Knows no holds, claims or limits.

A counter has the `level` that must stay within its limit, and answers with the cell that a claim is charged on. For a calendar's window
they are the same, for a rolling one the total and the slot of this moment.

Rolling windows run on a steady clock, which is the wall's at the start and is never set: when somebody sets the wall's, no limit is
filled or lifted by it. A calendar's windows follow the wall, there and back: a counter keeps the window before this one, so that
a clock that is put back over its end finds it as it was, and neither is reset twice.
"""

from __future__ import annotations

from collections import OrderedDict, deque

import msgspec

from ..windows import SECOND, SLOTS, Calendar, InFlight, Rolling, Span, Window

LATE = 7200 * SECOND  # after its end a window of the calendar is kept for a clock that is put back
EVER = 2**63
LOOKED_AT = 8  # counters among which the one to be forgotten is chosen


class Now(msgspec.Struct, frozen=True, gc=False):
    """The same moment on both clocks, in nanoseconds since the epoch."""

    wall: int
    steady: int


class Cell:
    """`used` and `reserved`, in billionths, by so many `holders`, of whom some may hold nothing yet. `total` is the level that it is a
    part of, as long as it is; `keeps`: what is used stays."""

    __slots__ = ("holders", "keeps", "reserved", "total", "used")

    def __init__(self, total: Cell | None = None, *, used: int = 0, keeps: bool = True) -> None:
        self.used = used
        self.reserved = 0
        self.holders = 0
        self.total = total
        self.keeps = keeps

    def hold(self, amount: int) -> None:
        """One holder more, of so much."""
        self.reserved += amount
        self.holders += 1
        total = self.total
        if total is not None:
            total.reserved += amount
            total.holders += 1

    def settle(self, held: int, used: int, holders: int = 0) -> None:
        """So much was used of what so many `holders` held, who are none any more."""
        self.reserved -= held
        self.used += used
        self.holders -= holders
        total = self.total
        if total is not None:
            total.reserved -= held
            total.used += used
            total.holders -= holders


class Counter:
    """One scope of a group. `level` is as of the last look, `limit` the last that it was asked with; `gone`: it was forgotten."""

    __slots__ = ("gone", "group", "level", "limit")

    def __init__(self, group: Group, level: Cell) -> None:
        self.group = group
        self.level = level
        self.limit = 0
        self.gone = False

    def cell(self, now: Now) -> Cell:
        """The one to charge; this is a look too."""
        raise NotImplementedError

    def hold(self, amount: int, now: Now) -> Cell:
        """One holder more there, of so much."""
        cell = self.cell(now)
        cell.reserved += amount
        cell.holders += 1
        return cell

    def look(self, now: Now) -> Cell:
        """The level alone."""
        raise NotImplementedError

    def spent(self, at: int, amount: int, now: Now) -> None:
        """Count what was used at an instant (wall) before; what is past its window is past."""
        raise NotImplementedError

    def resets_at(self, now: Now) -> int | None:
        """When all that counts in this moment is forgotten, on the wall; None: never, or nobody knows. To be asked after a look."""
        raise NotImplementedError

    def fits_after(self, excess: int, now: Now) -> float | None:
        """Seconds until so much less is counted, if nobody else comes; None: nobody knows."""
        resets = self.resets_at(now)
        return None if resets is None else (resets - now.wall) / SECOND

    def weight(self, now: Now) -> int | None:
        """What would be lost if it were forgotten; None: somebody holds it."""
        raise NotImplementedError

    def past(self, now: Now) -> bool:
        """Nothing would be lost, whatever the clock does."""
        return self.weight(now) == 0

    @property
    def cells(self) -> int:
        return 1


class Fixed(Counter):
    """In windows of the calendar. The group knows which one it is now."""

    __slots__ = ("_since", "_until", "before", "before_span", "span")

    def __init__(self, group: Group, now: Now, used: int) -> None:
        super().__init__(group, Cell(used=used))
        self.span = group.span(now)
        self._since = self._until = 0
        self.before_span: Span | None = None
        self.before = self.level

    def cell(self, now: Now) -> Cell:
        if self._since <= now.wall < self._until:
            return self.level
        span = self.group.span(now)
        self._since, self._until = span.start, EVER if span.end is None else span.end
        if span is not self.span and span != self.span:
            back = span == self.before_span
            self.before_span, self.span = self.span, span
            self.before, self.level = self.level, self.before if back else Cell()
        return self.level

    look = cell

    def hold(self, amount: int, now: Now) -> Cell:
        cell = self.level if self._since <= now.wall < self._until else self.cell(now)
        cell.reserved += amount
        cell.holders += 1
        return cell

    def spent(self, at: int, amount: int, now: Now) -> None:
        level = self.look(now)
        if self.span.holds(at):
            level.used += amount

    def resets_at(self, now: Now) -> int | None:
        return self.span.end

    def weight(self, now: Now) -> int | None:
        if self.level.holders or self.before.holders:
            return None
        return self.level.used if self.span.holds(now.wall) else 0

    def past(self, now: Now) -> bool:
        idle = not (self.level.holders or self.before.holders)
        return idle and not (self.level.used and _recent(self.span, now)) and not (self.before.used and _recent(self.before_span, now))


def _recent(span: Span | None, now: Now) -> bool:
    return span is not None and (span.end is None or now.wall < span.end + LATE)


class Sliding(Counter):
    """In the slots of a rolling window: those of the last sixty, and this moment's."""

    __slots__ = ("slots", "width")

    def __init__(self, group: Group, now: Now, used: int) -> None:
        super().__init__(group, Cell())
        assert isinstance(group.window, Rolling)
        self.width = group.window.slot
        self.slots: deque[tuple[int, Cell]] = deque()
        if used:
            self.cell(now).settle(0, used)

    def cell(self, now: Now) -> Cell:
        number = now.steady // self.width
        slots = self.slots
        if slots:
            last, cell = slots[-1]
            if last == number:
                return cell
            self._drop(number - SLOTS)
        cell = Cell(self.level)
        slots.append((number, cell))
        self.group.grown(1, now, self)
        return cell

    def hold(self, amount: int, now: Now) -> Cell:
        cell = self.cell(now)
        cell.hold(amount)
        return cell

    def look(self, now: Now) -> Cell:
        self._drop(now.steady // self.width - SLOTS)
        return self.level

    def spent(self, at: int, amount: int, now: Now) -> None:
        self.look(now)
        number = (min(at, now.wall) - now.wall + now.steady) // self.width
        if number < now.steady // self.width - SLOTS:
            return
        kept = dict(self.slots)
        if number not in kept:
            kept[number] = Cell(self.level)
            self.slots = deque(sorted(kept.items(), key=lambda slot: slot[0]))
            self.group.grown(1, now, self)
        kept[number].settle(0, amount)

    def _drop(self, oldest: int) -> None:
        slots, total = self.slots, self.level
        while slots and slots[0][0] < oldest:
            _, cell = slots.popleft()
            total.used -= cell.used
            total.reserved -= cell.reserved
            total.holders -= cell.holders
            cell.total = None
            self.group.size -= 1

    def _free(self, number: int, now: Now) -> int:
        """Nanoseconds until a slot no longer counts."""
        return (number + SLOTS + 1) * self.width - now.steady

    def resets_at(self, now: Now) -> int | None:
        number, cell = self.slots[-1] if self.slots else (0, None)
        if cell is not None and (cell.reserved or cell.used):  # as nearly always: without a loop
            return now.wall + (number + SLOTS + 1) * self.width - now.steady
        for number, cell in reversed(self.slots):
            if cell.used or cell.reserved:
                return now.wall + self._free(number, now)
        return now.wall

    def fits_after(self, excess: int, now: Now) -> float | None:
        for number, cell in self.slots:
            excess -= cell.used + cell.reserved
            if excess <= 0:
                return self._free(number, now) / SECOND
        return None

    def weight(self, now: Now) -> int | None:
        level = self.look(now)
        return None if level.holders else level.used

    @property
    def cells(self) -> int:
        return len(self.slots)


class Momentary(Counter):
    """What is in flight."""

    __slots__ = ()

    def __init__(self, group: Group, now: Now, used: int) -> None:
        super().__init__(group, Cell(keeps=False))

    def cell(self, now: Now) -> Cell:
        return self.level

    look = cell

    def spent(self, at: int, amount: int, now: Now) -> None:
        """Nothing stays of it."""

    def resets_at(self, now: Now) -> int | None:
        return None

    def weight(self, now: Now) -> int | None:
        return None if self.level.holders else 0


KINDS: dict[type, type[Fixed | Sliding | Momentary]] = {Calendar: Fixed, Rolling: Sliding, InFlight: Momentary}


class Group:
    """The counters of one name and window, by scope: at most `most` cells.

    Whoever makes up scopes must not fill the memory, nor push out the usage of others. When a group is full, of a few counters the one that
    counts least is forgotten; from then on, until the end of the window, a new one begins with what that one had. So whoever
    comes back has no less than before: what is forgotten is never spent twice.
    """

    __slots__ = ("_floor", "_floor_until", "_kind", "_span", "counters", "forgotten", "most", "size", "window")

    def __init__(self, window: Window, most: int) -> None:
        self.window = window
        self.most = most
        self.size = 0
        self.forgotten = 0
        self.counters: OrderedDict[str, Counter] = OrderedDict()
        self._kind = KINDS[type(window)]
        self._span = Span(0, 0)
        self._floor = 0
        self._floor_until: int | None = 0

    def span(self, now: Now) -> Span:
        """The calendar's window of this moment; it is worked out once."""
        start, end = span = self._span
        if start <= now.wall and (end is None or now.wall < end):
            return span
        assert isinstance(self.window, Calendar)
        self._span = self.window.span(now.wall)
        return self._span

    def counter(self, scope: str, now: Now) -> Counter:
        return self.counters.get(scope) or self._made(scope, now)

    def blank(self, now: Now) -> Counter:
        """What a counter that isn't here would be, were it made now."""
        return self._kind(Group(self.window, self.most), now, self.floor(now))

    def grown(self, cells: int, now: Now, by: Counter) -> None:
        """A counter was given cells; if that is too many, another is forgotten."""
        self.size += cells
        if self.size > self.most:
            self._make_room(now, by)

    def _made(self, scope: str, now: Now) -> Counter:
        self._tidy(now)
        made = self.counters[scope] = self._kind(self, now, self.floor(now))
        if not isinstance(made, Sliding):
            self.grown(1, now, made)
        return made

    def _tidy(self, now: Now) -> None:
        """Two are looked at for each that is made, so that those who are past go sooner than new ones come."""
        for _ in range(min(2, len(self.counters))):
            scope, counter = self.counters.popitem(last=False)
            if counter.past(now):
                counter.gone = True
                self.size -= counter.cells
            else:
                self.counters[scope] = counter

    def floor(self, now: Now) -> int:
        """What a counter that is new here begins with."""
        return self._floor if self._floor_until is None or now.steady < self._floor_until else 0

    def _make_room(self, now: Now, by: Counter) -> None:
        looked_at = [self.counters.popitem(last=False) for _ in range(min(LOOKED_AT, len(self.counters)))]
        weights = [None if counter is by else counter.weight(now) for _, counter in looked_at]
        least = min((weight for weight in weights if weight is not None), default=None)
        for (scope, counter), weight in zip(looked_at, weights, strict=True):
            if least is not None and weight == least:
                self._forget(counter, least, now)
                least = None
            else:
                self.counters[scope] = counter

    def _forget(self, counter: Counter, weight: int, now: Now) -> None:
        counter.gone = True
        self.size -= counter.cells
        if not weight:
            return
        self.forgotten += 1
        self._floor = max(self.floor(now), weight)
        if isinstance(self.window, Rolling):
            self._floor_until = now.steady + (SLOTS + 1) * self.window.slot
        else:
            end = self.span(now).end
            self._floor_until = None if end is None else end - now.wall + now.steady
