"""Secrets in an argument list do not reach the log."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safedelete.core.redact import HIDDEN, given_by_name, redact, scrubbed, without


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            ["pg_dump", "postgresql://app:hunter22@db/app?x=1"],
            ["pg_dump", "postgresql://app:***@db/app?x=1"],
        ),
        (["pg_dump", "postgresql://app@db/app"], ["pg_dump", "postgresql://app@db/app"]),
        (["sync", "redis://:hunter22@cache:6379/0"], ["sync", "redis://:***@cache:6379/0"]),
        (["dump", "postgresql://app:a/b@c:hunter22@db/app"], ["dump", "postgresql://app:***@db/app"]),
        (["mysql", "--password=hunter22", "app"], ["mysql", "--password=***", "app"]),
        (["mysql", "--password", "hunter22", "app"], ["mysql", "--password", "***", "app"]),
        (["rclone", "--s3-secret-access-key", "hunter22"], ["rclone", "--s3-secret-access-key", "***"]),
        (["env", "PGPASSWORD=hunter22", "pg_dump"], ["env", "PGPASSWORD=***", "pg_dump"]),
        (["env", "AWS_SECRET_ACCESS_KEY=hunter22"], ["env", "AWS_SECRET_ACCESS_KEY=***"]),
        (["curl", "-H", "Authorization: Bearer hunter22"], ["curl", "-H", "Authorization: ***"]),
        (["curl", "https://x/y?token=hunter22&n=1"], ["curl", "https://x/y?token=***&n=1"]),
        (["psql", "host=db password=hunter22 user=app"], ["psql", "host=db password=*** user=app"]),
        (["mysqldump", "-uapp", "-phunter22", "app"], ["mysqldump", "-uapp", "-p***", "app"]),
        (["/usr/bin/mariadb-dump", "-phunt er22"], ["/usr/bin/mariadb-dump", "-p***"]),
        (["mysql", "-p", "app", "-P3306"], ["mysql", "-p", "app", "-P3306"]),
        (["curl", "-su", "me:hunter22", "https://x"], ["curl", "-su", "me:***", "https://x"]),
        (["curl", "-ume:hunter22", "--proxy-user=p:hunter23"], ["curl", "-ume:***", "--proxy-user=p:***"]),
        (["curl", "--user", "me:a:b c", "-U", "p:hunter23"], ["curl", "--user", "me:***", "-U", "p:***"]),
        (
            ["curl", "-u", "me", "--user-agent=a:b", "http://h:80"],
            ["curl", "-u", "me", "--user-agent=a:b", "http://h:80"],
        ),
        (["env", "A=b", "sshpass", "-p", "hunter22", "ssh"], ["env", "A=b", "sshpass", "-p", "***", "ssh"]),
        (["redis-cli", "-h", "c", "-a", "hunter22"], ["redis-cli", "-h", "c", "-a", "***"]),
        (["mongodump", "-p", "hunter22"], ["mongodump", "-p", "***"]),
        (["sh", "-c", "mysqldump -phunter22 app | gzip"], ["sh", "-c", "mysqldump -p*** app | gzip"]),
        (["mkdir", "-p", "hunter22"], ["mkdir", "-p", "hunter22"]),
        (["rsync", "-u", "a:b", "c"], ["rsync", "-u", "a:b", "c"]),
        (["cp", "--no-password", "-v", "a", "b"], ["cp", "--no-password", "-v", "a", "b"]),
        (["cp", "s3://bucket/a:b@c", "authors=x"], ["cp", "s3://bucket/a:b@c", "authors=x"]),
    ],
)
def test_what_is_secret_is_hidden_and_the_rest_is_not(arguments: list[str], shown: list[str]) -> None:
    assert redact(arguments)[0] == shown


def test_a_secret_is_hidden_where_the_program_repeats_it() -> None:
    _, secrets = redact(["pg_dump", "postgresql://app:p%40ss-word@db/app"])
    assert without("connecting with p@ss-word (p%40ss-word)", secrets) == "connecting with *** (***)"
    assert without("retry mysql://x:other@db", secrets) == "retry mysql://x:***@db"


@pytest.mark.parametrize(
    "text",
    [
        "PGPASSWORD=hunter22",
        "password = hunter22",
        '{"password": "hunter22", "n": 1}',
        "Authorization: Bearer hunter22",
        "postgresql://me@corp:hunter22@db/app",
        "https://x/y?X-Amz-Signature=hunter22",
        "https://x/y?sv=1&sig=hunter22",
        "AccountKey=hunter22",
        "+ mysqldump --single-transaction -uapp -phunter22 app",
        "+ /usr/bin/mysqldump -p'hunter22 and more' app",
        'curl -fsS "https://x/?a=1&b=2" -u me:hunter22',
        "curl --user 'me:so hunter22'",
        'sshpass -p "hunter22" ssh host',
        "redis-cli -a hunter22 ping",
    ],
)
def test_a_secret_that_is_known_by_its_form_is_hidden_in_any_text(text: str) -> None:
    assert "hunter22" not in scrubbed(f"before {text} after")
    assert "hunter22" not in scrubbed(text)


@pytest.mark.parametrize(
    "text",
    [
        "mysql -p app",
        "mysqld is ready - port 3306",
        "tar -p x",
        "curl -u me https://x:80/y",
        "sql-curlew -u a:b",
    ],
)
def test_a_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert scrubbed(text) == text


def test_variables_that_are_given_to_a_program_are_secrets_by_their_names() -> None:
    given_ = {"PGPASSWORD": "two words", "TZ": "Europe/Berlin", "URL": "redis://:hunter22@h/0"}
    secrets = given_by_name(given_)
    assert (
        without("it said two words, hunter22 and Europe/Berlin", secrets)
        == "it said ***, *** and Europe/Berlin"
    )


def test_a_secret_of_three_letters_does_not_blank_every_line() -> None:
    _, secrets = redact(["x", "--password=abc"])
    assert without("abcdef", secrets) == "abcdef"


@given(st.text("abcdefghijklmnop0123456789_-.", min_size=8, max_size=20))
def test_no_password_of_a_url_is_ever_shown(password: str) -> None:
    shown, secrets = redact(["x", f"postgresql://user:{password}@host/db", f"--token={password}"])
    assert password not in " ".join(shown)
    assert without(f"<{password}>", secrets) == f"<{HIDDEN}>"


@pytest.mark.parametrize("word", ["x", "0123456789abcdef", "x-", "a."])
def test_a_long_line_takes_time_in_proportion_to_its_length(word: str) -> None:
    def took(letters: int) -> float:
        line, best = (word * letters)[:letters], float("inf")
        for _ in range(5):
            began = time.process_time()
            scrubbed(line)
            best = min(best, time.process_time() - began)
        return best

    assert took(16_384) < 50 * max(took(1_024), 0.0002), (
        "16 times as long; by its square it would be 256 times"
    )
