"""Which SQL people may run: one SELECT over the tables of usage, with functions that neither look elsewhere nor grow without bounds.

Decided on DuckDB's own syntax tree, and by lists of what is allowed: what nobody thought of is refused. DuckDB counts no text against
its memory limit, so growth is bounded here: each thing that can make its input larger multiplies, and the product has a limit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ...call.errors import CallerFault

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LONGEST = 8192  # characters of a statement
WIDEST = 1000  # characters of a text in it, or of a parameter
MANY = 3000  # parts of a statement
DEEPEST = 60  # levels of queries, tables and expressions within each other
SELECTS = 24
TABLES = 20
GROWTH = 64  # times that a value may become larger


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_EXPRESSIONS = _set(
    "BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION OPERATOR PARAMETER POSITIONAL_REFERENCE STAR SUBQUERY "
    "TYPE WINDOW"
)
_OPERATORS = _set(
    "ARRAY_CONSTRUCTOR ARRAY_EXTRACT COMPARE_IN COMPARE_NOT_IN GROUPING_FUNCTION OPERATOR_COALESCE OPERATOR_IS_NOT_NULL OPERATOR_IS_NULL "
    "OPERATOR_NOT OPERATOR_TRY STRUCT_EXTRACT"
)
_PARTS = _set(
    "SELECT_NODE SET_OPERATION_NODE BASE_TABLE EMPTY EXPRESSION_LIST JOIN SUBQUERY TABLE_FUNCTION DISTINCT_MODIFIER LIMIT_MODIFIER "
    "ORDER_MODIFIER ORDER_DEFAULT ASCENDING DESCENDING"
)
_TABLE_FUNCTIONS = frozenset({"generate_series", "range", "unnest"})
_TYPES = _set(
    "BIGINT BOOL BOOLEAN DATE DECIMAL DOUBLE FLOAT HUGEINT INT INT4 INT8 INTEGER INTERVAL JSON LONG NUMERIC REAL SHORT SMALLINT STRING "
    "TEXT TIME TIMESTAMP TIMESTAMPTZ TINYINT UBIGINT UINTEGER USMALLINT UTINYINT UUID VARCHAR"
) | {"TIMESTAMP WITH TIME ZONE"}

_FUNCTIONS = _set(
    # arithmetic, comparison
    "% & * ** + - / // ^ | ~ abs cbrt ceil ceiling degrees divide even exp fdiv floor fmod gcd greatest lcm least ln log log10 log2 mod "
    "multiply pi pow power radians round sign sqrt subtract trunc add isfinite isinf isnan random "
    # texts that don't grow
    "!~~ !~~* ~~ ~~* ~~~ ^@ ascii bit_length char_length character_length contains ends_with ilike_escape instr lcase left length "
    "length_grapheme like_escape lower ltrim md5 nfc_normalize not_ilike_escape not_like_escape ord position prefix regexp_extract "
    "regexp_full_match regexp_matches reverse right rtrim sha256 split_part starts_with strip_accents strlen strpos substr substring "
    "suffix translate trim ucase unicode upper "
    # times
    "age century date_add date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek "
    "dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us extract get_current_timestamp hour isodow isoyear julian last_day "
    "make_date make_time make_timestamp microsecond millisecond minute month monthname now quarter second strftime strptime "
    "time_bucket timezone to_days to_hours to_microseconds to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp "
    "to_weeks to_years today transaction_timestamp try_strptime week weekday weekofyear year yearweek "
    # choices, tags, figures
    "-> ->> array_length cardinality coalesce element_at if ifnull json_array_length json_exists json_extract json_extract_path "
    "json_extract_path_text json_extract_string json_keys json_type json_valid json_value len map_contains map_extract "
    "map_extract_value map_keys map_values nullif typeof list_contains array_extract list_extract struct_extract hash unnest "
    # aggregates
    "any_value approx_count_distinct approx_quantile arg_max arg_max_null arg_min arg_min_null argmax argmin avg bool_and bool_or corr "
    "count count_if count_star countif covar_pop covar_samp entropy favg first fsum geomean kurtosis last mad max max_by mean median min "
    "min_by mode quantile quantile_cont quantile_disc regr_intercept regr_r2 regr_slope skewness stddev stddev_pop stddev_samp sum "
    "var_pop var_samp variance "
    # windows
    "cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank rank_dense row_number "
    # what grows: see _growth
    "|| concat concat_ws list_value regexp_replace replace row struct_pack"
)
_JOINING = frozenset({"||", "concat", "concat_ws", "list_value", "row", "struct_pack"})
_GATHERING = frozenset({"array_agg", "group_concat", "list", "listagg", "string_agg"})  # a value for each row: no bounds
_TOP = dict.fromkeys(("max", "min"), 1) | dict.fromkeys(_set("arg_max arg_max_null arg_min arg_min_null argmax argmin max_by min_by"), 2)
_PATHS = _set(
    "-> ->> json_array_length json_exists json_extract json_extract_path json_extract_path_text json_extract_string json_keys json_type "
    "json_value"
)

_ASKING = _set("DESC DESCRIBE PRAGMA SHOW SUMMARIZE")  # what people ask first, who don't know the columns

_decode = msgspec.json.Decoder().decode


def check(parser: DuckDBPyConnection, sql: str, tables: Collection[str]) -> None:
    """Whether it may run. `parser` is any connection; nothing of `sql` is executed.

    Raises:
        CallerFault: it may not; the message says why.
    """
    if len(sql) > LONGEST:
        raise refused(f"it is longer than {LONGEST} characters")
    if not _is_text(sql):
        raise refused("it holds half of a character")
    if _first_word(sql) in _ASKING:
        raise refused(
            "one SELECT is allowed, and nothing else; docs/usage.md tells the columns of every table, FROM calls LIMIT 1 those of one"
        )
    _Guard(tables).statement(_tree(parser, sql))


def _first_word(sql: str) -> str:
    return next(iter(sql.split(maxsplit=1)), "").rstrip(";").upper()


def refused(why: str) -> CallerFault:
    return CallerFault(f"This SQL can't be run: {why}.", param="sql")


def _tree(parser: DuckDBPyConnection, sql: str) -> Any:
    import duckdb

    try:
        kinds = [statement.type for statement in parser.extract_statements(sql)]
        if kinds != [duckdb.StatementType.SELECT]:
            raise refused("one SELECT is allowed, and nothing else")
        [(text,)] = parser.execute("SELECT json_serialize_sql($1::VARCHAR, skip_null := true, skip_empty := true)", [sql]).fetchall()
        read = _decode(text)
    except duckdb.Error as error:
        raise refused(_words(str(error))) from None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise refused("it is nested too deep") from None
    if read.get("error"):
        raise refused(_words(str(read.get("error_message"))))
    statements = read["statements"]
    if len(statements) != 1:
        raise refused("one SELECT is allowed, and nothing else")
    return statements[0]


def _is_text(sql: str) -> bool:
    try:
        sql.encode()
    except UnicodeEncodeError:
        return False
    return True


def _words(message: str) -> str:
    return message.partition("\n")[0][:300].rstrip(".")


class _Guard:
    """Walks the tree of one statement."""

    def __init__(self, tables: Collection[str]) -> None:
        self._tables = frozenset(tables)
        self._parts = self._selects = self._references = 0
        self._growth = 1

    def statement(self, statement: Mapping[str, Any]) -> None:
        self._walk(statement, frozenset(), 0)

    def _walk(self, part: Any, names: frozenset[str], depth: int) -> None:
        """`names`: the WITH queries that are in sight."""
        if isinstance(part, list):
            for each in part:
                self._walk(each, names, depth)
        elif isinstance(part, dict):
            self._count(depth)
            self._check(part, names)
            if "cte_map" in part:
                names = self._named(part, names, depth + 1)
            for name, each in part.items():
                if name == "function" and part.get("type") == "TABLE_FUNCTION":  # which was checked by itself
                    self._walk(each.get("arguments"), names, depth + 1)
                elif name not in {"cte_map", "literal", "qualified_name"}:
                    self._walk(each, names, depth + (name not in {"arguments", "expression"}))

    def _named(self, part: Mapping[str, Any], names: frozenset[str], depth: int) -> frozenset[str]:
        """The queries of a WITH, each of which sees those before it."""
        for entry in part["cte_map"].get("map") or ():
            name = entry["key"].lower()
            if name in self._tables:
                raise refused(f"{name} is a table here and can't be the name of a WITH query")
            self._walk(entry["value"], names, depth)
            names |= {name}
        return names

    def _count(self, depth: int) -> None:
        self._parts += 1
        if depth > DEEPEST or self._parts > MANY:
            raise refused("it is too long or nested too deep")

    def _check(self, part: Mapping[str, Any], names: frozenset[str]) -> None:
        kind, type = part.get("class"), part.get("type")
        if kind is not None:
            if kind not in _EXPRESSIONS:
                raise refused(f"{_shown(type)} is not allowed")
            self._check_expression(part, str(kind), str(type))
        elif isinstance(type, str):
            if type not in _PARTS:
                raise refused(f"{_shown(type)} is not allowed")
            self._check_part(part, type, names)

    def _check_expression(self, part: Mapping[str, Any], kind: str, type: str) -> None:
        if kind in {"FUNCTION", "WINDOW"}:
            self._check_function(part, _FUNCTIONS)
        elif kind == "OPERATOR" and type not in _OPERATORS:
            raise refused(f"{_shown(type)} is not allowed")
        elif kind == "TYPE" and (part.get("type_name", "").upper() not in _TYPES or _path(part)[1:]):
            raise refused(f"values of type {part.get('type_name')} are not allowed")
        elif kind == "CONSTANT" and len(part.get("literal", {}).get("text") or "") > WIDEST:
            raise refused(f"a text in it is longer than {WIDEST} characters")
        if type == "ARRAY_CONSTRUCTOR":
            self._grow(len(part.get("children", ())))

    def _check_function(self, part: Mapping[str, Any], allowed: Collection[str]) -> None:
        name = part.get("function_name", "").lower()
        if name in _GATHERING:
            raise refused(f"{name} makes one value of any number of rows; max(DISTINCT x, 16) makes a list of at most 16")
        if name not in allowed or _path(part)[1:]:
            raise refused(f"the function {part.get('function_name')} is not allowed")
        arguments = [each.get("expression", {}) for each in part.get("arguments") or ()]
        if name in _JOINING:
            self._grow(len(arguments))
        elif name in _TOP and len(arguments) > _TOP[name]:
            self._grow(_most(name, arguments[_TOP[name]]))
        elif name in {"replace", "regexp_replace"}:
            self._grow(_replacement(name, arguments))
        elif name in _PATHS:
            _check_paths(arguments[1:])

    def _check_part(self, part: Mapping[str, Any], type: str, names: frozenset[str]) -> None:
        if type == "SELECT_NODE":
            self._selects += 1
            self._grow(sum(1 for _ in _stars(part.get("select_list"))))
        elif type == "TABLE_FUNCTION":
            function = part.get("function", {})
            if function.get("function_name", "").lower() not in _TABLE_FUNCTIONS or _path(function)[1:]:
                raise refused(f"the table function {function.get('function_name')} is not allowed")
        elif type == "BASE_TABLE":
            self._references += 1
            path = _path(part)
            if path[1:] or part.get("schema_name") or part.get("catalog_name") or part.get("at_clause"):
                raise refused("tables are named by one word")
            if part.get("table_name", "").lower() not in self._tables | names:
                raise refused(f"there is no table {part.get('table_name')}; there are {', '.join(sorted(self._tables))}")
        if self._selects > SELECTS or self._references > TABLES:
            raise refused("it names too many tables and queries")

    def _grow(self, times: int) -> None:
        self._growth *= max(times, 1)
        if self._growth > GROWTH:
            raise refused("it would make its values too large")


def _path(part: Mapping[str, Any]) -> list[str]:
    found: list[str] = part.get("qualified_name", {}).get("path") or []
    return found


def _stars(part: Any) -> Iterator[Any]:
    """The `*` and COLUMNS(…) of a select list; those of queries inside count for these."""
    if isinstance(part, list):
        for each in part:
            yield from _stars(each)
    elif isinstance(part, dict) and part.get("type") != "SELECT_NODE":
        if part.get("class") == "STAR":
            yield part
        for each in part.values():
            yield from _stars(each)


def _replacement(name: str, arguments: list[Mapping[str, Any]]) -> int:
    """How much longer a text can get by a replacement, both sides of which are written out."""
    written = [each.get("literal", {}) for each in arguments[1:3]]
    if [literal.get("kind") for literal in written] != ["STRING", "STRING"]:
        raise refused(f"what {name} puts in, and for what, must be written out as texts")
    was, becomes = [literal.get("text", "") for literal in written]
    return 1 + len(becomes) if name == "regexp_replace" or not was else -(-len(becomes) // len(was))


def _most(name: str, argument: Mapping[str, Any]) -> int:
    """How many values a list of the largest may hold."""
    literal = argument.get("literal", {})
    if literal.get("kind") != "INTEGER":
        raise refused(f"how many values {name} lists must be written out as a number")
    return int(literal["text"])


def _check_paths(arguments: list[Mapping[str, Any]]) -> None:
    """A wildcard finds each part of a JSON again within those around it: far more than there was."""
    for argument in arguments:
        text = argument.get("literal", {}).get("text") or ""
        if argument.get("function_name") == "list_value":
            _check_paths([each.get("expression", {}) for each in argument.get("arguments") or ()])
        elif argument.get("class") != "CONSTANT" or "*" in text or ".." in text:
            raise refused("a path into JSON must be written out, without * and ..")


def _shown(type: object) -> str:
    return str(type).removesuffix("_NODE").replace("_", " ").lower()


def check_parameters(parameters: Any) -> None:
    """
    Raises:
        CallerFault: they are no list or object of plain values.
    """
    values = list(parameters.values()) if isinstance(parameters, Mapping) else parameters
    if not isinstance(values, list | tuple) or len(values) > 50:
        raise CallerFault("params must be a list or an object of at most 50 values.", param="params")
    for value in values:
        if not (value is None or isinstance(value, bool | int | float | str)):
            raise CallerFault("params may hold texts, numbers, true, false and null.", param="params")
        if isinstance(value, str) and len(value) > WIDEST:
            raise CallerFault(f"A text of params is longer than {WIDEST} characters.", param="params")
