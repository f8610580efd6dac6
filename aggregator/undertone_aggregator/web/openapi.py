"""The API's OpenAPI 3.1 description, from which programs can generate clients."""

from typing import Any

from undertone_aggregator.estimate.formats import FORMATS
from undertone_aggregator.estimate.query import LARGEST_SELECTION
from undertone_aggregator.web.api import FILTERED, RAW
from undertone_aggregator.web.application import openapi

_PARAMETERS = {
    "from": "the start of the time span: ISO 8601 or Unix seconds; a time without a zone is read in the zone `tz`",
    "to": "the end of the time span, written like `from`",
    "tz": "an IANA time zone for the times in the request, such as Europe/London; the campaign's by default",
    "group": "a group of devices; `all`, the default, is all devices",
    "filtered": "`true`: the filtered series beside the raw one",
    "every": f"number of slots of one run, 1 to {LARGEST_SELECTION}; one cycle by default",
    "between": "hours of the day by `tz`, such as `18:00-23:00`; over midnight if the second hour is the earlier one",
    "against": "what the mean is compared with: `group:NAME`, a time ago such as `7d` (days by the clock of `tz`), "
    "another time `FROM..TO`, or other days such as `days:days-off`",
    "by": "`group`: a row, or in a file of means a series, for each published group",
    "days": "`workdays` or `days-off` by the campaign's calendar, or days of the week such as `mon,sat`",
    "of": "`slots`: estimates (the default); `means`: a small CSV file of them with time,"
    " group, mean, ± and unit alone; `losses`: reports that came, came late, or are missing; `refusals`:"
    " refused deliveries by slot of arrival and reason",
    "shares": "the shares of quantiles, numbers between 0 and 1, separated by commas",
    "format": "one of " + ", ".join(f"`{form}`" for form in FORMATS),
}


def document() -> dict[str, Any]:
    """Return the description as a JSON value."""
    each = "/api/v1/campaigns/{name}"
    series = f"columns of raw ({', '.join(RAW)}) and, if asked for, filtered ({', '.join(FILTERED)}) estimates"
    selection = ("from", "to", "tz", "group", "filtered")
    return openapi(
        "Undertone",
        "Means of many devices' readings under local differential privacy, for settled slots with enough reports."
        " Each JSON answer with means or quantiles holds their guarantee. No answer holds a device's report."
        ' Errors are {"error": sentence}, but that of status 500 is plain text.',
        {
            "/api/v1/campaigns": _get("all campaigns at a glance", ()),
            each: _get("one campaign at a glance", ("name",)),
            f"{each}/estimates": _get(series, ("name", *selection)),
            f"{each}/facts": _get(
                "the campaign's broadcast messages and the settings of its estimates, for programs", ("name",)
            ),
            f"{each}/ranges": _get(
                "the mean of each run of `every` slots, over those slots of the run that are published",
                ("name", "from", "to", "tz", "group", "every"),
            ),
            f"{each}/selection": _get(
                "the mean of all selected slots and the total over all registered devices, each with its error",
                ("name", "from", "to", "tz", "group", "by", "between", "days"),
            ),
            f"{each}/difference": _get(
                "the mean of all selected slots minus another mean, with the error of this difference: errors that both"
                " means share cancel",
                ("name", "from", "to", "tz", "group", "by", "against", "between", "days"),
            ),
            f"{each}/losses": _get(
                "reports by slot: those that came, came late, or are missing; the gaps; refused deliveries by reason",
                ("name", "from", "to", "tz", "group"),
            ),
            f"{each}/quantiles": _get(
                "quantiles over runs of slots, estimated by a model", ("name", "from", "to", "tz", "every", "shares")
            ),
            f"{each}/epochs": _get("the history of theta", ("name",)),
            f"{each}/download": _get("the selection as a file", ("name", *selection, "by", "format", "of"), "text/csv"),
            f"{each}/events": _get(
                "server-sent events named `campaign`: the campaign at a glance, whenever something is new",
                ("name",),
                "text/event-stream",
            ),
        },
    )


def _get(summary: str, parameters: tuple[str, ...], kind: str = "application/json") -> dict[str, Any]:
    described = [
        {
            "name": name,
            "in": "path" if name == "name" else "query",
            "required": name == "name",
            "description": "the campaign" if name == "name" else _PARAMETERS[name],
            "schema": {"type": "string"},
        }
        for name in parameters
    ]
    answers = {"200": {"description": summary, "content": {kind: {}}}, "400": {"description": "a parameter is wrong"}}
    if "name" in parameters:
        answers["404"] = {"description": "there is no such campaign"}
    return {"get": {"summary": summary, "parameters": described, "responses": answers}}
