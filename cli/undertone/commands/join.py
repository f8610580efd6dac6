"""``undertone join``: codes by which people let their phones and homes take part."""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from undertone.commands.devices import AsJson
from undertone.long_running import end_with_input
from undertone.options import with_options
from undertone_aggregator.base.plural import many
from undertone_shared.errors import Invalid

if TYPE_CHECKING:
    from undertone_aggregator.server.folder import Home

app = typer.Typer(
    help="Make, list and revoke the codes by which people join a campaign: links and QR codes.", no_args_is_help=True
)


def register(root: typer.Typer) -> None:
    """Add the commands to the application."""
    root.add_typer(app, name="join")


@dataclass(frozen=True, kw_only=True)
class HomeChoice:
    """The server's folder that a command works on."""

    home: Annotated[Path | None, "The server's folder, as undertone init makes it."] = None
    campaign: Annotated[str | None, "The campaign; needed if there are several."] = None

    def open(self) -> "Home":
        """Open the folder. Raises Invalid without one."""
        from undertone_aggregator.server.folder import Home

        if self.home is None:
            raise Invalid("the server's folder is missing, expected --home DIR")
        return Home(self.home)


@app.command()
@with_options(HomeChoice)
def create(
    choice: HomeChoice,
    devices: Annotated[int, typer.Option(help="Number of codes; each lets one device join.")] = 1,
    expires: Annotated[str, typer.Option(help="Time until the codes expire: 12h, 14d.")] = "14d",
    group: Annotated[str, typer.Option(help="Group of the devices that join.")] = "all",
    about: Annotated[str, typer.Option(help="What the campaign is for, in your words, for the people you ask.")] = "",
    links: Annotated[Path | None, typer.Option(help="File for the links, one a line, instead of the terminal.")] = None,
    qr: Annotated[
        Path | None, typer.Option(help="File for the QR codes: an .html sheet to print, or .svg for one code.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make one-time codes, and print them as links. They cannot be shown again, because only their hashes are stored.

    Each link lets one phone or one home join, which gets its own name, credentials and policy.
    """
    from undertone_aggregator.base.durations import seconds_of
    from undertone_aggregator.base.files import write_private
    from undertone_aggregator.store.store import open_store
    from undertone_operate.fleet.devices import FleetFiles, model_of
    from undertone_operate.fleet.join_codes import JoinCodes, parse_code
    from undertone_operate.join.joining import agreement
    from undertone_operate.join.sheet import check_sheet, write_sheet
    from undertone_operate.join.tls import JoinTls, join_link

    home = choice.open()
    name = home.only(choice.campaign)
    options = home.join
    if options.listen is None:
        raise Invalid(
            f"listen is missing in [join] of {home.folder / 'server.toml'}: set listen to the ADDRESS:PORT at which"
            " people join, and url to the beginning of their links"
        )
    if qr is not None:
        check_sheet(qr, devices)
    config = home.config(name)
    with open_store(config.store_url, campaign=name) as store:
        fleet = FleetFiles.at_home(home, name, store)
        fleet.check_group(group)
        model_of(fleet)
    tls = None if options.insecure else JoinTls(home.folder, options, home.broker_options)
    now = int(time.time())
    ends = now + seconds_of("--expires", expires)
    codes = JoinCodes(home.folder).create(name, devices, group, about, now, ends)
    addresses = [join_link(options.url or "", code, None if tls is None else tls.authority) for code in codes]
    if qr is not None:
        write_sheet(qr, addresses, options.asks, about or name, ends, agreement(home, parse_code(codes[0])))
    if links is not None:
        write_private(links, "\n".join([*addresses, ""]))
    if as_json:
        print(json.dumps({"campaign": name, "expires": ends, "links": addresses}))
        return
    if links is None:
        print("\n".join(addresses))
    places = [str(path) for path in (links, qr) if path is not None]
    until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(ends))
    print(
        f"{many(len(addresses), 'code')} for {name}, valid until {until}"
        + "".join(f", in {place}" for place in places),
        file=sys.stderr,
    )


@app.command("list")
@with_options(HomeChoice)
def list_codes(choice: HomeChoice, as_json: AsJson = False) -> None:
    """List the codes with their states and devices. The codes themselves are not stored."""
    from undertone_operate.fleet.join_codes import JoinCodes

    home, now = choice.open(), time.time()
    name = None if choice.campaign is None else home.only(choice.campaign)
    codes = [code for code in JoinCodes(home.folder).codes() if name in (None, code.campaign)]
    if as_json:
        print(json.dumps([code.row(now) for code in codes]))
        return
    for code in codes:
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(code.expires))
        print(f"{code.id:6} {code.campaign:20} {code.state(now):9} expiry {until} {code.device or ''}".rstrip())


@app.command()
@with_options(HomeChoice)
def revoke(
    choice: HomeChoice,
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID...]", help="Numbers of the codes.")] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Revoke all open codes; with --campaign, those of this campaign.")
    ] = False,
) -> None:
    """Revoke codes that nobody has redeemed. Revoke a device that has joined with undertone devices revoke."""
    from undertone_operate.fleet.join_codes import BOUND, OPEN, JoinCodes

    home, now = choice.open(), int(time.time())
    if bool(ids) == every:
        given = "given both by numbers and by --all" if every else "missing"
        raise Invalid(f"the codes are {given}, expected numbers or --all")
    name = None if choice.campaign is None else home.only(choice.campaign)
    codes = JoinCodes(home.folder)
    listed = {code.id: code for code in codes.codes() if name in (None, code.campaign)}
    chosen = [code.id for code in listed.values() if code.state(now) in (OPEN, BOUND)] if every else list(ids or ())
    if unknown := [each for each in chosen if each not in listed]:
        of = "" if name is None else f" for campaign {name}"
        raise Invalid(f"the code is {unknown[0]}, expected a number that undertone join list shows{of}")
    revoked = codes.revoke(chosen, now)
    for each in chosen:
        if each not in revoked:
            code = listed[each]
            what = "the device that joined with it was forgotten"
            if code.device is not None:
                how = "is joining" if code.redeemed is None else "has joined"
                what = f"{code.device} {how} with it; to revoke the device, use undertone devices revoke"
            print(f"code {each} is not revoked: {what}")
    print(f"{many(len(revoked), 'code')} revoked")


@app.command(hidden=True)
@with_options(HomeChoice)
def serve(
    choice: HomeChoice,
    attached: Annotated[bool, typer.Option("--attached", help="End when standard input closes.")] = False,
) -> None:
    """Run the listener at which people join. undertone serve runs this command in a process of its own."""
    from undertone_aggregator.base.log import Journal
    from undertone_aggregator.base.packages import JOIN, check_packages

    check_packages(JOIN)
    from undertone_operate.join.server import serve_join

    home = choice.open()
    if attached:
        end_with_input()
    serve_join(home, Journal(), lambda address: None if attached else print(f"people join at {address}", flush=True))
