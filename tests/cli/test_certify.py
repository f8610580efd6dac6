import json
from fractions import Fraction
from math import e, exp, log

import pytest
from typer.testing import CliRunner

import undertone
from support.designed import small_table
from support.refusal import refused, told
from undertone.app import app
from undertone_aggregator import design
from undertone_aggregator.design import audit, certificate, mechanisms
from undertone_aggregator.design.named import NAMES, Certified, Named, certified_names
from undertone_aggregator.mqtt import signing
from undertone_shared.errors import Invalid
from undertone_shared.mechanism import WindowMechanism
from undertone_shared.off_board import issue
from undertone_shared.scalar import Cohort, ReportRule

KEYS = {
    "mechanism",
    "epsilon_cap",
    "certificate",
    "epsilon_achieved",
    "variance_worst",
    "variance_ratio_worst",
    "cells",
    "levels",
    "total",
}


def certify(*arguments):
    return CliRunner().invoke(app, ["certify", *map(str, arguments)])


def test_hybrid_at_one():
    result = certify("--mechanism", "hybrid", "--epsilon", 1, "--json")
    assert result.exit_code == 0
    facts = json.loads(result.stdout)
    assert facts.keys() >= KEYS
    assert facts["certificate"] == "2721/1001"
    assert e >= 2721 / 1001
    assert facts["epsilon_achieved"] == pytest.approx(log(2721 / 1001))
    assert abs(facts["variance_ratio_worst"] - 1) < 1e-3
    assert (facts["cells"], facts["levels"]) == (1647, 256)


@pytest.mark.slow_but("0.05-hybrid", "8-piecewise")
@pytest.mark.parametrize("name", [name for name in certified_names() if name != "optimal"])
@pytest.mark.parametrize("epsilon", ["0.05", "8"])
def test_every_mechanism(name, epsilon):
    facts = certificate.certify_named(name, epsilon).as_json()
    assert float(Fraction(str(facts["certificate"]))) <= exp(float(epsilon))
    if name == "square-wave":
        assert facts["variance_worst"] is facts["variance_ratio_worst"] is None
    else:
        assert 0.98 < facts["variance_ratio_worst"] < 1.001


def test_the_optimal_table_beside_the_hybrid():
    facts = certificate.certify_named("optimal", "1").as_json()
    assert float(Fraction(str(facts["certificate"]))) <= exp(1)
    assert facts["variance_ratio_worst"] <= 0.94
    assert facts["levels"] == 24
    with pytest.raises(Invalid, match="there is no table"):
        certificate.certify_named("optimal", "0.05")


def test_text_names_both_levels_of_guarantee():
    text = certify("--mechanism", "piecewise", "--epsilon", 2).stdout
    assert told(text, "2564/347", "e^2")
    assert told(text, "event level", 2, "48 reports", 96)
    assert "none, because a report is no unbiased value" in certify("--mechanism", "square-wave", "--epsilon", 2).stdout


def table_file(tmp_path, shift=0, **changes):
    table = small_table(shift)
    value = {
        "mechanism": table.describe(),
        "theta": 12 >> shift,
        "decoded": list(table.decoded[0]),
        "denominator": table.decoded[1],
    } | changes
    path = tmp_path / "table.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_a_table_file(tmp_path):
    path = table_file(tmp_path, shift=1)
    result = certify("--table", path, "--epsilon", 2, "--json")
    assert json.loads(result.stdout)["certificate"] == "6/1"
    assert json.loads(result.stdout)["variance_worst"] > 0
    path.write_text(json.dumps(small_table(0).describe()), encoding="utf-8")
    assert json.loads(certify("--table", path, "--epsilon", 2, "--json").stdout)["variance_worst"] is None
    assert "none, because the table comes without its decoded values" in certify("--table", path, "--epsilon", 2).stdout


@pytest.mark.parametrize("name", ["optimal", "hybrid", "piecewise", "square-wave"])
def test_what_json_prints_can_be_certified_again(name, tmp_path):
    size = ("--bins", 9) if name == "square-wave" else ("--levels", 8)
    first = json.loads(certify("--mechanism", name, "--epsilon", 1, *size, "--json").stdout)
    path = tmp_path / "mechanism.json"
    path.write_text(json.dumps(first["integers"]), encoding="utf-8")
    again = json.loads(certify("--table", path, "--epsilon", 1, "--json").stdout)
    for key in ("certificate", "integers", "cells", *(["variance_worst"] if name == "optimal" else [])):
        assert again[key] == first[key]


def test_a_table_that_breaks_its_cap_is_refused_with_the_column(tmp_path):
    result = certify("--table", table_file(tmp_path), "--epsilon", 1)
    assert result.exit_code == 1
    assert told(result.stderr, "refused", "column 0", 16, 96, "2.71828183")


def test_a_biased_decode_is_refused_with_the_level(tmp_path):
    result = certify("--table", table_file(tmp_path, decoded=[-10, -2, 6, 14, 23]), "--epsilon", 2)
    assert result.exit_code == 1
    assert told(result.stderr, "refused", "level 0", "-1", "mean")


def built(mechanism):
    cohort = Cohort(design.square_wave("1", range(0, 1300, 10)))
    return issue.build(
        name="c", sensor="meter", unit="Wh", measure="sum", offset=0, bound=1200, slot_seconds=1800, cycle=48,
        epoch=1800, last_slot=9, default=0, cohort=cohort, report=ReportRule(0, 613, mechanism),
    )  # fmt: skip


@pytest.mark.parametrize("message", [False, True])
def test_a_campaign_file(tmp_path, message):
    campaign = built(design.hybrid("1"))
    path = tmp_path / "campaign"
    path.write_bytes(issue.pack(campaign, 5) if message else campaign.body)
    facts = json.loads(certify("--message", path, "--epsilon", 1, "--json").stdout)
    assert [f["mechanism"] for f in facts] == ["cohort", "report"]
    assert facts[1]["certificate"] == "2721/1001"
    said = certify("--message", path, "--epsilon", 1).stdout.splitlines()[0].split()
    assert said == ["campaign", "c,", "fingerprint", campaign.fingerprint.hex()]
    result = certify("--message", path, "--epsilon", 0.999)
    assert result.exit_code == 1
    assert told(result.stderr, "refused", "column 0", 1001, 2721)


def test_a_campaigns_signature_and_form(tmp_path):
    campaign = built(design.hybrid("1"))
    signer, other = (signing.make_key(tmp_path / f"{name}.key") for name in ("ours", "theirs"))
    path = tmp_path / "campaign"
    path.write_bytes(issue.pack(campaign, 5, signer.sign))
    arguments = ("--message", path, "--epsilon", 1, "--signer")
    assert certify(*arguments, signer.public).exit_code == 0
    for data in (path.read_bytes(), issue.pack(campaign, 5), issue.pack(campaign, 5, lambda _: signer.sign(bytes(32)))):
        path.write_bytes(data)
        result = certify(*arguments, other.public)
        assert result.exit_code == 1
        assert told(result.stderr, "refused", "signed", other.public)
    assert told(str(certify(*arguments, "00").exception), "signer", "'00'")
    path.write_bytes(campaign.body)
    assert told(str(certify(*arguments, signer.public).exception), "body", "no signature")
    path.write_bytes(campaign.body.replace(b":48", b": 48"))
    assert "not canonical" in str(certify("--message", path, "--epsilon", 1).exception)
    path.write_bytes(campaign.body.replace(b'"stride":1', b'"stride":6'))
    assert "schedule.stride is 6" in str(certify("--message", path, "--epsilon", 1).exception)


class Understated(WindowMechanism):
    def variance(self, level, theta):
        numerator, denominator = super().variance(level, theta)
        return (numerator - 1, denominator)


class Uneven(WindowMechanism):
    def weights(self, level):
        row = super().weights(level)
        if level == 2:
            row[0] += 1
        return row


class Bold(WindowMechanism):
    def certificate(self):
        return (self.a - 1, self.b)


def test_what_is_not_as_stated_fails(monkeypatch):
    for kind in (Understated, Uneven, Bold):
        monkeypatch.setitem(mechanisms.TABLE, kind, mechanisms.TABLE[WindowMechanism])
    with pytest.raises(audit.NotCertified, match=r"at level 0 the weights give the variance .*, but the closed form"):
        audit.exact_levels(Understated(7, 3, 5, 2, 8), 2)
    with refused(2, 84, 83, error=audit.NotCertified):
        audit.check_rows(Uneven(7, 3, 5, 2, 8))
    with refused("7/3", 2, error=audit.NotCertified):
        audit.checked_ratio(Bold(7, 3, 5, 2, 8), (3, 1))


def test_a_failed_check_is_exit_code_1(monkeypatch):
    monkeypatch.setitem(mechanisms.TABLE, Understated, mechanisms.TABLE[WindowMechanism])
    understated = Named(Certified(lambda epsilon, levels: Understated(7, 3, 5, 2, 8), sized="levels"))
    monkeypatch.setitem(NAMES, "piecewise", understated)
    result = certify("--mechanism", "piecewise", "--epsilon", 1)
    assert result.exit_code == 1
    assert "refused: at level 0" in result.stderr


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: certificate.certify_named("laplace", "1"), "mechanism is 'laplace', expected one of stochastic"),
        (lambda: certificate.certify_named("hybrid", "nan"), "epsilon is 'nan', expected a number"),
        (lambda: certificate.certify_named("hybrid", "1", 0), "levels is 0, expected an integer from 1"),
        (lambda: certificate.certify_named("square-wave", "1", bins=1), "bins is 1, expected an integer from 2 to 256"),
        (lambda: certificate.certify_table(b"[1]", "1"), "the file is not a JSON object"),
        (lambda: certificate.certify_table(b"{", "1"), "the file is not JSON"),
        (lambda: certificate.certify_table(b"{}", "1"), "the file has kind None, expected one of"),
        (lambda: certificate.certify_campaign(b"UTC2", "1"), "the campaign message has 4 bytes"),
        (lambda: certificate.certify_campaign(b"no", "1"), "the campaign is not JSON"),
    ],
)
def test_bad_input_is_one_sentence(call, sentence):
    with pytest.raises(Invalid, match=sentence):
        call()


def test_one_source_is_expected():
    with pytest.raises(Invalid, match="expected exactly one of mechanism, table and message"):
        CliRunner().invoke(app, ["certify", "--epsilon", "1"], catch_exceptions=False)


@pytest.mark.slow_but("hybrid", "optimal")
@pytest.mark.parametrize("name", certified_names())
def test_what_is_printed_as_json_is_certified_again(name, tmp_path):
    printed = certify("--mechanism", name, "--epsilon", 1, "--json").stdout
    path = tmp_path / "certificate.json"
    path.write_text(printed, encoding="utf-8")
    again = json.loads(certify("--table", path, "--epsilon", 1, "--json").stdout)
    first = json.loads(printed)
    same = {"certificate", "cells", "levels", "total", "integers"}
    assert {key: again[key] for key in same} == {key: first[key] for key in same}
    if name == "optimal":
        assert again["variance_worst"] == first["variance_worst"]


def test_a_damaged_certificate_is_named(tmp_path):
    path = tmp_path / "certificate.json"
    path.write_text('{"integers": 5}', encoding="utf-8")
    with refused("integers", 5):
        undertone.certify(table=path, epsilon=1)
    with pytest.raises(Invalid, match="expected exactly one of mechanism, table and message"):
        undertone.certify("hybrid", table=path)


@pytest.mark.slow
def test_what_the_world_learns_of_a_slot_a_day_and_a_year():
    result = certify("--published", "--epsilon", 1, "--reports", 1000, "--slots", 48, "--json")
    assert result.exit_code == 0, result.output
    spans = json.loads(result.stdout)
    assert [spans[span]["releases"] for span in ("a slot", "a day", "a year")] == [1, 48, 17_520]
    # `docs/privacy.md` prints these numbers, rounded.
    assert spans["a slot"]["epsilon"] == pytest.approx(0.144, rel=0.02)
    assert spans["a day"]["epsilon"] == pytest.approx(1.15, rel=0.02)
    faked = json.loads(certify("--published", "--epsilon", 1, "--reports", 2000, "--fakes", 0.5, "--json").stdout)
    assert faked == spans
    text = certify("--published", "--epsilon", 1, "--reports", 1000).stdout
    assert "provided that the server keeps the reports to itself" in text
    assert "from the server's operator, a reading is protected only by the ε of its own report" in text


def test_published_needs_the_number_of_reports():
    result = certify("--published", "--epsilon", 1)
    assert isinstance(result.exception, Invalid)
    assert "reports is missing" in str(result.exception)
