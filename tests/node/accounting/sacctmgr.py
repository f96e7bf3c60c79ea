"""Stand-in for sacctmgr and its database, with the behaviour of Slurm 24.11: what it stores, prints and refuses.

A command whose values are all set already changes nothing; its message and exit code then depend on its arguments
(`_modify_account`). Observed with real commands in a rehearsal.
"""

from itertools import product

from system.host import SetupError

LIMITS = {
    "Priority": "priority", "MaxWall": "maxwall", "MaxJobsPerUser": "maxjobspu", "MaxSubmitJobsPerUser": "maxsubmitpu",
    "MaxTRESPerJob": "maxtres", "MaxTRESPerUser": "maxtrespu", "GrpTRES": "grptres", "Preempt": "preempt",
    "Flags": "flags",
}  # fmt: skip
UNCHANGED = (
    "sacctmgr: error: Request didn't affect anything\n Error with request: Data has not changed since time specified"
)


class Killed(BaseException):
    """The set-up was killed."""


class Database:
    """Accounts, users, their associations and QOS. It is `run` of the modules that call sacctmgr."""

    def __init__(self) -> None:
        self.accounts = {"root": {"descr": "default root account", "org": "root"}}
        self.places: dict[tuple[str, str], dict[str, str]] = {("root", ""): _place(), ("root", "root"): _place()}
        self.users = {"root": "root"}
        self.qos: dict[str, dict[str, str]] = {"normal": {"priority": "0"}}
        self.commands: list[str] = []
        self.kill_at: float = float("inf")
        self.lost = False
        """Whether the command at which the run is killed comes to nothing."""

    def run(self, *words: str, **_: object) -> str:
        """Return what `sacctmgr` does with these words. Raises SetupError where it ends with another exit code than
        0."""
        if "show" in words:
            return self._show(words[4], words[5].partition("=")[2].split(","))
        verb, kind, *rest = words[2:]
        self.commands.append(" ".join(words[2:]))
        killed = len(self.commands) > self.kill_at
        if not (killed and self.lost):
            options = dict(word.split("=", 1) for word in rest if "=" in word)
            if verb == "add" and kind != "user":
                options["name"] = rest[0]
            getattr(self, f"_{verb}_{kind}")(options)
        if killed:
            raise Killed
        return ""

    def _show(self, kind: str, fields: list[str]) -> str:
        if kind == "account":
            rows = [{"account": name, **row} for name, row in self.accounts.items()]
        elif kind == "user":
            rows = [{"user": name, "defaultaccount": default} for name, default in self.users.items()]
        elif kind == "qos":
            rows = [{"name": name, **row} for name, row in self.qos.items()]
        else:
            rows = [{"account": account, "user": user, **row} for (account, user), row in self.places.items()]
        return "".join("|".join(row.get(field.lower(), "") for field in fields) + "\n" for row in rows)

    def _add_qos(self, options: dict[str, str]) -> None:
        _check(options["name"] not in self.qos, " Nothing new added.")
        self.qos[options["name"]] = {"priority": "0"}
        self._limit(options.pop("name"), options)

    def _modify_qos(self, options: dict[str, str]) -> None:
        _check(options["name"] in self.qos, " Nothing modified")
        self._limit(options.pop("name"), options)

    def _limit(self, name: str, options: dict[str, str]) -> None:
        for key, value in options.items():
            if key == "Preempt":
                _check(set(filter(None, value.split(","))) <= set(self.qos), "You gave a bad qos")
            _set_limit(self.qos[name], key, LIMITS[key], value)

    def _add_account(self, options: dict[str, str]) -> None:
        name = options["name"]
        _check(name not in self.accounts, f" Already existing account {name} on cluster dev")
        _check(options["parent"] in self.accounts, "the parent account is not there")
        self.accounts[name] = {"descr": options["description"].lower(), "org": options["organization"].lower()}
        self.places[name, ""] = {
            **_place(), "parentname": options["parent"], "share": options.get("fairshare", "1"),
        }  # fmt: skip
        self._set(self.places[name, ""], {key: value for key, value in options.items() if key[0].isupper()})

    def _modify_account(self, options: dict[str, str]) -> None:
        name = options.pop("name")
        place = self.places.get((name, ""))
        assert place, "an account that is not there"
        for key, field in (("description", "descr"), ("organization", "org")):
            if key in options:
                self.accounts[name][field] = options.pop(key).lower()
        # Then sacctmgr does not apply the other values.
        _check(options.get("parent") != place["parentname"], UNCHANGED)
        for key, value in options.items():
            if key == "parent":
                _check(value in self.accounts, "the parent account is not there")
        self._set(place, options)

    def _set(self, place: dict[str, str], options: dict[str, str]) -> None:
        for key, value in options.items():
            _set_limit(place, key, {"parent": "parentname", "fairshare": "share"}.get(key, key.lower()), value)

    def _delete_account(self, options: dict[str, str]) -> None:
        name = options["name"]
        _check(name in self.accounts, " Nothing deleted")
        assert not any(place.get("parentname") == name for place in self.places.values()), "it has children"
        assert not any(account == name and user for account, user in self.places), "it has users"
        del self.accounts[name], self.places[name, ""]

    def _delete_qos(self, options: dict[str, str]) -> None:
        _check(self.qos.pop(options["name"], None) is not None, " Nothing deleted")
        assert not any(options["name"] in place["qos"].split(",") for place in self.places.values()), "users have it"

    def _add_user(self, options: dict[str, str]) -> None:
        names, accounts = options["name"].split(","), options["account"].split(",")
        new = [(account, name) for name, account in product(names, accounts) if (account, name) not in self.places]
        _check(bool(new), "Request didn't affect anything\nNothing added.")
        for account, name in new:
            _check(account in self.accounts, "the account is not there")
            rights = {key: options[key] for key in ("qos", "defaultqos") if key in options}
            self.places[account, name] = {**_place(), **rights}
            self._set(self.places[account, name], {key: value for key, value in options.items() if key[0].isupper()})
            self.users.setdefault(name, options.get("defaultaccount", account))

    def _modify_user(self, options: dict[str, str]) -> None:
        name = options.pop("name")
        mine = [account for account, user in self.places if user == name]
        if "defaultaccount" in options:
            default = options.pop("defaultaccount")
            _check(default in mine, " Can't modify because these users aren't associated with new default account")
            self.users[name] = default
        chosen = options.pop("account").split(",") if "account" in options else mine
        for account in chosen:
            place = self.places[account, name]
            self._set(place, options)
            _check(set(place["qos"].split(",")) <= set(self.qos), "You gave a bad qos")

    def _delete_user(self, options: dict[str, str]) -> None:
        name = options["name"]
        gone = [(a, u) for a, u in self.places if u == name and options.get("account", a) == a]
        _check(bool(gone), " Nothing deleted")
        if "account" in options:
            _check(self.users[name] != options["account"], " You can not remove the default account of a user")
        else:
            del self.users[name]
        for pair in gone:
            del self.places[pair]


def _set_limit(row: dict[str, str], key: str, field: str, value: str) -> None:
    """Set a limit of a QOS or an association. Of resources, those that are not named stay."""
    if "TRES" in key:
        _check("=" in value, f"slurmdb_format_tres_str: no TRES id found for {value}")
        kept = dict(part.split("=") for part in row.get(field, "").split(",") if part)
        kept |= dict(part.split("=") for part in value.split(","))
        row[field] = ",".join(f"{what}={count}" for what, count in kept.items() if count != "-1")
    elif key == "Priority":
        row[field] = value.replace("-1", "0")
    else:
        row[field] = "" if value == "-1" and key != "Preempt" else value


def _place() -> dict[str, str]:
    return {"parentname": "", "share": "1", "defaultqos": "", "qos": "normal"}


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise SetupError(message)
