#!/usr/bin/env python3
"""A guard in front of a table of PostgreSQL: most queries for names that do not exist never reach it.

  guard.py ask NAME            "no" if there is certainly no such name, or "perhaps"; without the database
  guard.py mail NAME...        their mails, and how often the database was asked
  guard.py create NAME MAIL    a new row; names that the filter could not take wait in the table not_in_filter
  guard.py catch-up            adds these names; run it every few seconds
  guard.py rebuild             makes the filter from the table, while the old one stays in use

Debian: python3-redis, python3-psycopg2. BLOOMERY_URL is the server; libpq's variables (PGHOST...) name the database.
"""
import os
import sys
import time

import redis

filters = redis.Redis.from_url(os.environ.get("BLOOMERY_URL", "redis://127.0.0.1:6379"), socket_timeout=0.5, socket_connect_timeout=0.5)


def may_exist(name):
    """False only if the filter says that there is certainly no such name."""
    try:
        return filters.execute_command("BF.QUERY", "users", "ITEMS", name) != [0]
    except redis.RedisError:  # no filter, no daemon, no answer in time: the database decides
        return True


def mail_of(database, name):
    with database.cursor() as cursor:
        cursor.execute("SELECT mail FROM users WHERE name = %s", (name,))
        row = cursor.fetchone()
    return row and row[0]


def add(name):
    for filter in ("users:new", "users"):  # in this order: between the two, users:new may become users
        try:
            (reply,) = filters.execute_command("BF.INSERT", filter, "NOCREATE", "ITEMS", name)
        except redis.ResponseError as error:
            if "not found" not in str(error):
                raise
        else:
            if reply not in (0, 1):
                raise reply  # the filter is full


def create(database, name, mail):
    with database, database.cursor() as cursor:  # commits at its end
        try:
            add(name)  # before the row: a reader never misses it
        except redis.RedisError:  # no daemon: the sign-up succeeds all the same
            cursor.execute("INSERT INTO not_in_filter VALUES (%s)", (name,))
        cursor.execute("INSERT INTO users VALUES (%s, %s)", (name, mail))


def catch_up(database):
    with database, database.cursor() as cursor:
        cursor.execute("DELETE FROM not_in_filter RETURNING name")
        for (name,) in cursor.fetchall():
            add(name)  # an error rolls the DELETE back


def rebuild(database):
    filters.delete("users:new")
    filters.execute_command("BF.RESERVE", "users:new", 0.001, 20000, "KEYED")
    time.sleep(1)  # the longest time from add() to its commit: a row that is not seen below was added by its writer
    added = 0
    with database, database.cursor("names") as cursor:  # a cursor of the server: any number of rows
        cursor.execute("SELECT name FROM users")
        while names := [name for (name,) in cursor.fetchmany(1000)]:
            replies = filters.execute_command("BF.INSERT", "users:new", "NOCREATE", "ITEMS", *names)
            if len(replies) != len(names) or any(reply not in (0, 1) for reply in replies):
                sys.exit(f"not all names were added: {replies[-1]}")
            added += len(names)
    filters.rename("users:new", "users")  # readers see the old filter or the new one
    print(f"{added} names")


def main(what="", *words):
    if what == "ask":
        return print("perhaps" if may_exist(words[0]) else "no")
    if what not in ("mail", "create", "catch-up", "rebuild"):
        sys.exit(__doc__)
    import psycopg2  # the filter answers without it
    try:
        database = psycopg2.connect("")
        if what == "mail":
            maybe = [name for name in words if may_exist(name)]
            for name in maybe:
                print(name, mail_of(database, name))
            print(f"{len(words)} names, {len(maybe)} look-ups in the database")
        else:
            {"create": create, "catch-up": catch_up, "rebuild": rebuild}[what](database, *words)
    except (psycopg2.Error, redis.RedisError) as error:
        sys.exit(f"{what}: {str(error).strip()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
