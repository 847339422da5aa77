"""The screens of `ddpjob top`. Only this module imports Textual.

Names, messages and logs are text of others. Textual would read [words] in plain strings as markup, so each text is
shown as rich's `Text`, or in a widget that is told that it is no markup.
"""

import argparse
import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.events import Key
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane

from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.phrases import about_a_file, style_of
from ddpjob_operator.client import ClusterError
from ddpjob_operator.text import one_line, visible
from ddpjob_operator.view_model import JobDetail, JobKey, JobRow, newest_first

from .actions import ACTS, Act, carried_out, command_of, makes_sense, refusal, told_act, watched
from .drawing import (
    LARGEST_FIRST,
    OF_RANKS,
    cells,
    columns_for,
    joined,
    matches,
    rank_cells,
    shortened,
    sorted_by,
    sparkline,
    summary,
    time_axis,
    told_incidents,
    tree,
    whom_others_wait_for,
)
from .feeds import Feed, all_rows

REFRESH_SECONDS = 1.0
"""How often ages, and files on this machine, are looked at. What a cluster tells is shown sooner."""
SOON_SECONDS = 0.2
"""How soon a change is shown: changes that come together are shown together."""
DETAIL_SECONDS = 3.0
"""How often the status page is asked for the steps of single ranks, which nobody tells by itself."""
MARGIN = 4
BY_KEY = {act.key: act for act in ACTS}
SHORTEST_NAME = 12
"""So many characters of a name are shown on the smallest screen."""


def plain(text: str = "", **options: str) -> Static:
    """A widget that shows a text as it is."""
    return Static(text, markup=False, **options)  # type: ignore[arg-type]


class Aside:
    """Threads that end with the program, and what they have the screen do.

    A worker of Textual would keep the program from ending until it had its answer, and there are only a few of them.
    """

    def __init__(self, app: App[None]) -> None:
        self._app, self._loop = app, asyncio.get_running_loop()

    def start(self, does: Callable[..., None], *given: Any) -> None:
        """Calls a function in a thread of its own."""
        threading.Thread(target=does, args=given, daemon=True).start()

    def show(self, shows: Callable[[], None]) -> None:
        """Calls a function in the thread of the screen, soon, unless the program has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._app.call_later, shows)


class Lines(DataTable[Text]):
    """A table of which whole rows are chosen, so that Home and End lead to the first and the last one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home", "scroll_top", "First", show=False),
        Binding("end", "scroll_bottom", "Last", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(cursor_type="row")

    def fill(self, headings: Sequence[str], lines: Mapping[str, Sequence[Text]]) -> None:
        """Shows these lines, by their keys, in place of all others, and stays where it was scrolled to.

        Each column gets its width now. If Textual measured them, it would do so later, and lines that it has drawn in
        between would keep a wrong width.
        """
        at = self.scroll_offset
        self.clear(columns=True)
        for number, heading in enumerate(headings):
            widest = max((line[number].cell_len for line in lines.values()), default=0)
            self.add_column(heading, key=heading, width=max(widest, cell_len(heading)))
        for key, line in lines.items():
            self.add_row(*line, key=key)
        self.scroll_to(*at, animate=False)

    def has_room_for(self, lines: Iterable[Sequence[str]]) -> bool:
        """Whether the columns are wide enough for these cells."""
        widths = [column.width for column in self.ordered_columns]
        return all(cell_len(cell) <= width for line in lines for cell, width in zip(line, widths, strict=True))


class Question(ModalScreen[str | None]):
    """Asks for a word. The result is None if the user does not want to go on."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, question: str, usual: str) -> None:
        super().__init__()
        self._question, self._usual = question, usual

    def compose(self) -> ComposeResult:
        """The question, and a line for the answer."""
        with Vertical(classes="box"):
            yield plain(f"{self._question} (Esc: leave it)")
            yield Input(self._usual)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Takes the answer."""
        self.dismiss(event.value.strip() or None)


class Confirmation(ModalScreen[bool]):
    """Asks twice, by different keys, whether to do what cannot be undone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "first", "Yes"),
        Binding("Y", "second", "Yes, really"),
        Binding("escape,n", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str, warning: str) -> None:
        super().__init__()
        self._question, self._warning = question, warning
        self._once = False

    def compose(self) -> ComposeResult:
        """The first question."""
        with Vertical(classes="box"):
            yield plain(f"{self._question} y: yes, n: no")

    def action_first(self) -> None:
        """Asks the second time."""
        self._once = True
        self.query_one(Static).update(f"{self._warning} Really? Y (capital): yes, n: no")

    def action_second(self) -> None:
        """Agrees, if it was asked before."""
        if self._once:
            self.dismiss(True)


class Help(ModalScreen[None]):
    """The keys of a screen, until the next key."""

    def __init__(self, keys: Iterable[tuple[str, str]]) -> None:
        super().__init__()
        self._keys = keys

    def compose(self) -> ComposeResult:
        """A line for each key."""
        with VerticalScroll(classes="box"):
            yield plain(joined(f"{key:<10}{does}" for key, does in self._keys))

    def on_key(self, event: Key) -> None:
        """Goes back."""
        event.stop()
        self.dismiss()


class ActingScreen(Screen[None]):
    """A screen with a chosen job, and the keys that act on it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(act.key, f"act('{act.key}')", act.label, show=not act.rare) for act in ACTS),
        Binding("question_mark", "help", "Help", key_display="?"),
    ]
    KEYS: ClassVar[tuple[tuple[str, str], ...]] = ()
    """The keys of this screen that do nothing to the job, and what they do."""

    def action_help(self) -> None:
        """Shows all keys."""
        acts = ((act.key, told_act(act)) for act in ACTS)
        self.app.push_screen(Help([*self.KEYS, *acts, ("?", "this help; any key leaves it")]))

    def pointed_rank(self) -> str:
        """The number of the rank under the cursor; empty if there is none."""
        return ""

    def chosen(self) -> JobKey | None:
        """The job that keys act on; None if there is none."""
        raise NotImplementedError

    def chosen_row(self) -> JobRow | None:
        """What is known of this job; None if nothing is."""
        raise NotImplementedError

    def why_not(self, act: Act) -> str:
        """Why an action is not possible for the chosen job; empty if it is, as far as it is known."""
        job, row = self.chosen(), self.chosen_row()
        if job is None:
            return "there is no job"
        if not command_of(act, job, self.top.arguments):
            return refusal(job)
        return refusal(job, row.state) if row and not makes_sense(act, row) else ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that cannot work for the chosen job are not offered."""
        return action != "act" or not any(self.why_not(act) for act in ACTS if act.key in parameters)

    def on_key(self, event: Key) -> None:
        """Says why a key does nothing that is not offered for the chosen job."""
        act = BY_KEY.get(event.key)
        if act is not None and (why := self.why_not(act)) and self.chosen() is not None:
            self.tell(f"{act.label}: {why}", failed=True)

    @work
    async def action_act(self, key: str) -> None:
        """Does to the chosen job what a key stands for, after the questions that belong to it."""
        act, job = BY_KEY[key], self.chosen()
        if job is None:
            return
        usual = (act.of_rank and self.pointed_rank()) or act.usual
        given = await self.app.push_screen_wait(Question(act.asks, usual)) if act.asks else ""
        if given is None:
            return
        if not act.warns or await self.app.push_screen_wait(Confirmation(f"{act.label} {job.name}?", act.warns)):
            self._carry_out(act, command_of(act, job, self.top.arguments, given))

    def _carry_out(self, act: Act, words: Sequence[str]) -> None:
        if act.watched:
            with self.app.suspend():
                watched(words)
            self.refresh()
        else:
            self.top.aside.start(self._ask, self.top.aside, words)

    def _ask(self, aside: Aside, words: Sequence[str]) -> None:
        succeeded, said = carried_out(words)
        aside.show(partial(self.tell, said, failed=not succeeded))

    def tell(self, text: str, *, failed: bool = False) -> None:
        """Shows a message for some seconds."""
        self.app.notify(visible(text), severity="error" if failed else "information", markup=False)

    @property
    def top(self) -> "TopApp":
        """The program that this screen belongs to."""
        assert isinstance(self.app, TopApp)
        return self.app


class JobsScreen(ActingScreen):
    """All jobs, the unfinished and newest ones first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Job", priority=True),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "all", show=False),
        Binding("less_than_sign", "sort(-1)", show=False),
        Binding("greater_than_sign", "sort(1)", show=False),
        Binding("I", "turn", show=False),
        Binding("w", "next_to_look_at", "Look", show=False),
        *ActingScreen.BINDINGS,
        Binding("q", "app.quit", "Quit"),
    ]
    KEYS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("Enter", "the job in full"),
        ("/", "only jobs with these words in name, place, state or message"),
        ("Esc", "all jobs again"),
        ("< >", "sort by another column"),
        ("I", "the other way round"),
        ("w", "the next of the jobs to look at, the latest first"),
        ("q", "leave"),
    )

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, JobRow] = {}
        self._shown: list[tuple[str, ...]] = []
        self._headings: tuple[str, ...] = ()
        self._order, self._turned = "", False
        """The column that sorts; empty: as of `newest_first`."""
        self._to_look_at: list[str] = []
        """The jobs that need a look, the latest first."""
        self._led_to = ""
        """The last of them to which a key has led."""

    def compose(self) -> ComposeResult:
        """A line of figures, the table, what the chosen job says, a filter if it is asked for, and the keys."""
        yield plain(id="summary")
        yield Lines()
        yield plain(id="message")
        yield Input(id="filter", placeholder="words in name, place, state or message", compact=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Begins to show jobs."""
        self.set_interval(REFRESH_SECONDS, self.show_jobs)
        self.set_interval(SOON_SECONDS, self._show_changes)
        self.query_one(Lines).focus()
        self.show_jobs()

    def on_resize(self) -> None:
        """Chooses the columns that fit."""
        self.show_jobs()

    def _show_changes(self) -> None:
        if self.top.take_change():
            self.show_jobs()

    def show_jobs(self) -> None:
        """Shows the present rows. The chosen job stays chosen, wherever it has moved."""
        table, now = self.query_one(Lines), datetime.now(UTC)
        try:
            rows = sorted(all_rows(self.top.feeds, now), key=newest_first)
        except BadInputError as error:
            self.query_one("#summary", Static).update(one_line(str(error)))
            return
        columns = columns_for(self.app.size.width)
        # A history may have been copied: neither its uid nor its whole key need be there once.
        chosen, everything = repr(self.chosen()), {repr(row.key): row for row in rows}
        known = {repr(row.key): row for row in self._wanted([*everything.values()], now)}
        shown = [self._cells(row, columns, now) for row in known.values()]
        self._draw(table, columns, known, shown)
        self._rows = known
        if chosen in known:
            table.move_cursor(row=table.get_row_index(chosen), scroll=False)
        seen = {*self._to_look_at}
        new = [one for one, row in everything.items() if row.needs_a_look and one not in seen]
        if new:
            self._led_to = ""  # The next key leads to what is new, not on from what was seen.
        self._to_look_at = new + [
            one for one in self._to_look_at if one in everything and everything[one].needs_a_look
        ]
        self._say_how_many([*everything.values()], len(known))
        self._say()
        self.refresh_bindings()

    def _wanted(self, rows: list[JobRow], now: datetime) -> list[JobRow]:
        """The rows that the filter lets through, in the order that was chosen."""
        words = self.query_one(Input).value
        found = [row for row in rows if matches(row, words)]
        return (
            sorted_by(self._order, found, now, turned=self._turned)
            if self._order
            else found[:: -1 if self._turned else 1]
        )

    def _cells(self, row: JobRow, columns: Sequence[str], now: datetime) -> tuple[str, ...]:
        """The cells of a row, of which a long name leaves room for the others."""
        longest = max(SHORTEST_NAME, self.app.size.width // 4)
        shown = cells(row, columns, now)
        return tuple(
            shortened(cell, longest) if name == "NAME" else cell for name, cell in zip(columns, shown, strict=True)
        )

    def _say_how_many(self, rows: Sequence[JobRow], shown: int) -> None:
        told = [summary(rows)]
        if shown < len(rows):
            told.append(f"{shown} shown")
        if self._to_look_at:
            told.append(f"{len(self._to_look_at)} to look at (w)")
        told += [feed.problem for feed in self.top.feeds if feed.problem]
        self.query_one("#summary", Static).update(". ".join(told))

    def _headings_of(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The headings, of which the one of the column that sorts has an arrow."""
        down = self._turned != (self._order in LARGEST_FIRST)
        return tuple(f"{name}{('▼' if down else '▲') if name == self._order else ''}" for name in columns)

    def _draw(
        self, table: Lines, columns: tuple[str, ...], known: dict[str, JobRow], shown: list[tuple[str, ...]]
    ) -> None:
        """Draws the table anew if jobs have come, gone or moved, else only the cells that have changed."""
        headings, lines = self._headings_of(columns), dict(zip(known, shown, strict=True))
        if headings != self._headings or [*known] != [*self._rows] or not table.has_room_for(shown):
            table.fill(headings, {key: [*map(_styled, columns, line)] for key, line in lines.items()})
        else:
            for (key, line), before in zip(lines.items(), self._shown, strict=True):
                for column, heading, cell, old in zip(columns, headings, line, before, strict=True):
                    if cell != old:
                        table.update_cell(key, heading, _styled(column, cell))
        self._headings, self._shown = headings, shown

    def on_data_table_row_highlighted(self) -> None:
        """Shows what the chosen job says, and the keys that can work for it."""
        self._say()
        self.refresh_bindings()

    def _say(self) -> None:
        row = self.chosen_row()
        nothing = (
            "No job matches. Esc: all jobs" if self.query_one(Input).value else "No jobs. Start one: ddpjob run FILE"
        )
        self.query_one("#message", Static).update(row.message if row else nothing)

    def chosen_row(self) -> JobRow | None:
        """The job under the cursor, as it was seen last."""
        table = self.query(Lines).first() if self.query(Lines) else None
        if table is None or not table.row_count:
            return None
        return self._rows.get(str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value))

    def chosen(self) -> JobKey | None:
        """The job under the cursor."""
        row = self.chosen_row()
        return row.key if row else None

    def action_next_to_look_at(self) -> None:
        """Moves the cursor to the job that has come to need a look last, then to the one before, and so on."""
        found = [one for one in self._to_look_at if one in self._rows]
        if found:
            goes_on = self._led_to == repr(self.chosen()) and self._led_to in found
            self._led_to = found[(found.index(self._led_to) + 1) % len(found) if goes_on else 0]
            table = self.query_one(Lines)
            table.move_cursor(row=table.get_row_index(self._led_to))

    def action_open(self) -> None:
        """Shows the chosen job in full; after a filter was typed, goes to the jobs that it has found."""
        if self.query_one(Input).has_focus:
            self._leave_filter()
        elif (key := self.chosen()) is not None:
            self.app.push_screen(JobScreen(key))

    def action_filter(self) -> None:
        """Asks for words that the jobs have to have."""
        words = self.query_one(Input)
        words.display = True
        words.focus()

    def on_input_changed(self) -> None:
        """Shows what is found while it is typed."""
        self.show_jobs()

    def action_all(self) -> None:
        """Shows all jobs again."""
        self.query_one(Input).value = ""
        self._leave_filter()

    def _leave_filter(self) -> None:
        words = self.query_one(Input)
        words.display = bool(words.value)
        self.query_one(Lines).focus()

    def action_sort(self, step: int) -> None:
        """Sorts by the next column or, with -1, by the one before; beyond the ends, as of `newest_first`."""
        orders = ("", *columns_for(self.app.size.width))
        at = orders.index(self._order) if self._order in orders else 0
        self._order, self._turned = orders[(at + step) % len(orders)], False
        self.show_jobs()

    def action_turn(self) -> None:
        """Turns the order around."""
        self._turned = not self._turned
        self.show_jobs()


def _styled(column: str, cell: str) -> Text:
    return Text(cell, style_of(cell) if column == "STATE" else "", no_wrap=True)


class JobScreen(ActingScreen):
    """One job in full: in words, its start, its ranks, its incidents and its curves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "app.pop_screen", "Back", key_display="Esc"),
        *(
            Binding(str(number), f"tab('{name}')", show=False)
            for number, name in enumerate(("job", "ranks", "time"), 1)
        ),
        *ActingScreen.BINDINGS,
    ]

    KEYS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("1 2 3", "the job in words, its ranks, its incidents and curves"),
        ("Esc q", "all jobs"),
    )

    def __init__(self, key: JobKey) -> None:
        super().__init__()
        self._key = key
        self._row: JobRow | None = None
        self._ranks: list[tuple[str, ...]] = []
        self._left = threading.Event()

    def compose(self) -> ComposeResult:
        """The job's name and state, and the three tabs."""
        yield plain(visible(self._key.name), id="title")
        with TabbedContent():
            with TabPane("1 Job", id="job"), VerticalScroll():
                yield plain("Reading …", id="words")
            with TabPane("2 Ranks", id="ranks"):
                yield plain(id="slowest")
                yield Lines()
            with TabPane("3 Incidents and curves", id="time"), VerticalScroll():
                yield plain(id="axis")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Begins to show the job."""
        top = self.top
        self.call_after_refresh(top.aside.start, self._follow, top.aside, top.feeds)  # Its widgets are there by then.

    def on_unmount(self) -> None:
        """Ends that."""
        self._left.set()

    def chosen(self) -> JobKey:
        """The job of this screen."""
        return self._key

    def chosen_row(self) -> JobRow | None:
        """The job as it was read last."""
        return self._row

    def pointed_rank(self) -> str:
        """The rank under the cursor, or the first one of its node; empty if the ranks are not in sight."""
        at = self.query_one(Lines).cursor_row
        if self.query_one(TabbedContent).active != "ranks" or not 0 <= at < len(self._ranks):
            return ""
        return self._ranks[at][0].partition("-")[0]

    def action_tab(self, name: str) -> None:
        """Shows a tab."""
        self.query_one(TabbedContent).active = name
        if name == "ranks":
            self.query_one(Lines).focus()

    def _follow(self, aside: Aside, feeds: Sequence[Feed]) -> None:
        feed = next(feed for feed in feeds if feed.origin == self._key.origin)
        while not self._left.is_set():
            try:
                detail, problem = feed.detail(self._key, datetime.now(UTC)), "The job is gone."
            except OSError as error:
                detail, problem = None, about_a_file(error)
            except (BadInputError, ClusterError) as error:
                detail, problem = None, str(error)
            aside.show(partial(self._show, detail, problem))
            self._left.wait(DETAIL_SECONDS)

    def _show(self, detail: JobDetail | None, problem: str) -> None:
        if self._left.is_set():
            return
        words = self.query_one("#words", Static)
        if detail is None:
            words.update(visible(problem))
            return
        self._row = detail.row
        self.refresh_bindings()
        width, now = max(20, self.size.width - MARGIN), datetime.now(UTC)
        self.query_one("#title", Static).update(visible(f"{self._key.name}  {detail.row.state}"))
        words.update(joined(_in_words(detail)))
        self.query_one("#slowest", Static).update(_slowest(detail))
        self.query_one("#axis", Static).update(joined(_over_time(detail, width, now)))
        self._show_ranks([rank_cells(row) for row in detail.ranks])

    def _show_ranks(self, ranks: list[tuple[str, ...]]) -> None:
        if ranks == self._ranks:
            return
        lines = {str(at): [Text(cell, no_wrap=True) for cell in line] for at, line in enumerate(ranks)}
        table = self.query_one(Lines)
        at = table.cursor_row
        table.fill(OF_RANKS, lines)
        table.move_cursor(row=at, scroll=False)
        self._ranks = ranks


def _in_words(detail: JobDetail) -> Iterator[str]:
    for label, text in detail.lines.items():
        yield f"{label + ':':<14}{text}"
    if detail.start:
        yield from ("", "Start of this attempt:", *tree(detail.start))


def _slowest(detail: JobDetail) -> str:
    if not detail.ranks:
        return "Nothing runs."
    others = whom_others_wait_for(detail.slowest)
    return f"Slowest: {others}" if others else "No rank is known to be slower than the others."


def _over_time(detail: JobDetail, width: int, now: datetime) -> Iterator[str]:
    if detail.axis is not None:
        yield from time_axis(detail.axis, width)
        yield from told_incidents(detail.axis, now) if detail.axis.incidents else ("No incidents.",)
    for name, curve in detail.curves.items():
        yield ""
        yield name
        yield sparkline(curve, width)
    if detail.no_curves:
        yield from ("", f"Curves are {'not complete' if detail.curves else 'not shown'}: {detail.no_curves}")


class TopApp(App[None]):
    """All jobs of some feeds."""

    CSS = """
    #summary, #title { height: 1; text-style: bold; }
    #message { height: 3; border-top: none; }
    #filter { display: none; }
    Lines { height: 1fr; scrollbar-size-horizontal: 0; }
    TabPane { padding: 0; }
    TabbedContent { height: 1fr; }
    #slowest { height: 1; }
    Question, Confirmation, Help { align: center middle; }
    .box { width: 70%; height: auto; max-height: 50%; border: solid; padding: 0 1; background: $surface; }
    Help .box { width: 95%; max-height: 100%; }
    """
    ENABLE_COMMAND_PALETTE = False
    TITLE = "ddpjob top"

    def __init__(self, feeds: Sequence[Feed], arguments: argparse.Namespace) -> None:
        super().__init__(ansi_color=None)
        self.feeds, self.arguments = feeds, arguments
        self._changed = True

    def on_mount(self) -> None:
        """Begins to follow the feeds."""
        self.aside = Aside(self)
        self.push_screen(JobsScreen())
        for feed in self.feeds:
            feed.follow(partial(setattr, self, "_changed", True))

    def on_unmount(self) -> None:
        """Ends that."""
        for feed in self.feeds:
            feed.stop()

    def take_change(self) -> bool:
        """Whether something has changed since the last call."""
        changed, self._changed = self._changed, False
        return changed
