import json

import pytest
from cryptography import x509

from undertone.__main__ import main

CAMPAIGN = """
[broker]
{broker}
[campaign]
name = "demo"
sensor = "load"
unit = "Wh"
bound = 10000
epsilon = 1
"""
OWN = "port = 4711"
FOREIGN = 'mode = "external"\nhost = "broker.example"\npassword_file = "aggregator.password"'


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    def call(*options, broker=OWN, devices="2", out="out"):
        campaign = tmp_path / "aggregator.toml"
        campaign.write_text(CAMPAIGN.format(broker=broker))
        command = ["undertone", "provision", "--plan", str(campaign), "--devices", devices]
        monkeypatch.setattr("sys.argv", [*command, "--output", str(tmp_path / out), *options])
        code = main()
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def device(tmp_path, name="load-001"):
    return json.loads((tmp_path / "out" / "devices" / name / "device.json").read_text())


def test_an_endpoint_on_loopback_has_no_tls(run, tmp_path):
    code, out, _ = run()
    assert code == 0
    assert "epsilon = ln(2721/1001) per reading (event level)" in out
    assert "in its whole life" in out
    assert "fit for loopback only" in out
    assert device(tmp_path)["broker"] == {"host": "127.0.0.1", "port": 4711, "password_file": "password"}


def test_an_absence_sizes_the_outbox(run, tmp_path):
    code, out, _ = run("--absence", "12h")
    assert code == 0
    assert "each device keeps its newest 25 reports, 600 bytes, while the server is away: 12h" in out
    assert device(tmp_path)["outbox"] == 25
    code, _, error = run("--absence", "3d", out="other")
    assert (code, "absence is 259200 s, expected at most 172800 s" in error) == (2, True)
    code, _, error = run("--absence", "long", out="other")
    assert (code, "absence is 'long', expected" in error) == (2, True)


def test_json(run):
    code, out, _ = run("--json")
    assert code == 0
    told = json.loads(out)
    assert told["devices"] == ["load-001", "load-002"]
    assert told["cap"] == [2721, 1001]
    assert told["tls"] is False


def test_a_private_authority(run, tmp_path):
    code, out, _ = run("--private-ca", broker=FOREIGN)
    assert code == 0
    assert "certfile" in out
    assert device(tmp_path)["broker"]["tls"] == {"ca": "ca.crt"}
    assert device(tmp_path)["broker"]["port"] == 8883
    assert (tmp_path / "out/tls/server.key").exists()


def test_each_device_has_a_certificate_and_no_password(run, tmp_path):
    code, out, _ = run("--private-ca", "--certificates", broker=FOREIGN)
    assert code == 0
    assert "use_identity_as_username true" in out
    assert device(tmp_path)["broker"]["tls"] == {"ca": "ca.crt", "identity": "device"}
    assert "password_file" not in device(tmp_path)["broker"]
    folder = tmp_path / "out/devices/load-001"
    assert {path.name for path in folder.iterdir()} == {
        "device.json",
        "policy.json",
        "ca.crt",
        "device.crt",
        "device.key",
    }
    assert (folder / "device.key").stat().st_mode & 0o077 == 0
    certificate = x509.load_pem_x509_certificate((folder / "device.crt").read_bytes())
    assert certificate.subject.rfc4514_string() == "CN=load-001"
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes()))


def test_a_second_fleet_leaves_the_first_one_alone(run, tmp_path):
    assert run("--private-ca", broker=FOREIGN)[0] == 0
    before = (tmp_path / "out/tls/ca.key").read_bytes()
    code, _, err = run("--private-ca", broker=FOREIGN)
    assert code == 2
    assert "exists already" in err
    assert (tmp_path / "out/tls/ca.key").read_bytes() == before


def test_an_authority_that_is_given(run, tmp_path):
    (tmp_path / "mine.pem").write_text("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n")
    code, _, _ = run("--ca-file", str(tmp_path / "mine.pem"), "--host", "10.0.0.5", broker=FOREIGN)
    assert code == 0
    assert device(tmp_path)["broker"]["host"] == "10.0.0.5"


@pytest.mark.parametrize(
    ("options", "broker", "sentence"),
    [
        (["--host", "10.0.0.5"], OWN, "ca_file is missing in [broker] of server.toml"),
        ([], FOREIGN, "ca_file is missing in [broker] of server.toml"),
        (["--insecure", "--private-ca"], FOREIGN, "exclude each other"),
        (["--ca-file", "nowhere.pem"], FOREIGN, "nowhere.pem is not a file"),
        (["--certificates"], OWN, "--certificates needs --private-ca, the authority"),
        (["--devices", "0"], OWN, "devices is 0, expected 1 to 1000000"),
        (["--port", "70000"], OWN, "--port is 70000, expected an integer from 1 to 65535"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_sentence(run, options, broker, sentence):
    code, out, err = run(*options, broker=broker)
    assert code == 2
    assert sentence in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert out == ""


def test_a_configuration_that_does_not_exist(run, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        "sys.argv", ["undertone", "provision", "--plan", "no.toml", "--devices", "1", "--output", str(tmp_path)]
    )
    assert main() == 2
    assert "no.toml" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["müller.example", "a..b", "a b"])
def test_a_host_that_no_certificate_can_name_is_refused_before_anything_is_written(run, tmp_path, host):
    code, _, error = run("--private-ca", "--host", host)
    assert (code, error.splitlines()) == (2, [f"error: --host is {host!r}, expected a host's name or address"])
    assert not (tmp_path / "out").exists()
