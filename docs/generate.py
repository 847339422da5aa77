"""Updates the generated parts of the documents: `make generate`. `--check` only lists what is out of date.

Pages are written by hand, except for the part between a line `<!-- generated: NAME -->` and the next `<!-- end of
generated -->`, which comes from SECTIONS, by its name. The JSON Schema, the CRD and the Grafana dashboards are
generated as a whole. The cluster's chart contains the CRD, too.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
from ddpjob_operator.api.crd import crd
from ddpjob_operator.api.schema import job_schema
from generator import alerts, api, chart, commands, contract, library, lifecycle, operator, rooms
from generator.dashboards import DASHBOARDS

ROOT = Path(__file__).resolve().parent.parent
SECTION = re.compile(r"(<!-- generated: ([a-z-]+) -->\n).*?(<!-- end of generated -->\n)", re.DOTALL)

SECTIONS: dict[str, Callable[[], str]] = {
    "name": api.name,
    "spec": api.spec,
    "defaults": api.defaults,
    "rules": api.rules,
    "fixed": api.fixed,
    "status": api.status,
    "states": lifecycle.states,
    "conditions": lifecycle.conditions,
    "kstatus": lifecycle.kstatus,
    "kstatus-blocked": lifecycle.kstatus_blocked,
    "reasons": lifecycle.reasons,
    "causes": lifecycle.causes,
    "pod-reasons": lifecycle.pod_reasons,
    "changes": lifecycle.changes,
    "policies": lifecycle.policies,
    "env": contract.env,
    "labels": contract.labels,
    "exit-codes": contract.exit_codes,
    "pod": contract.pod,
    "service": contract.service,
    "ddpjob": commands.ddpjob,
    "ddpjob-train": commands.ddpjob_train,
    "ddpjob-train-commands": commands.ddpjob_train_commands,
    "ddpjob-supervise": commands.ddpjob_supervise,
    "values": chart.values,
    "cluster-values": chart.cluster_values,
    "alerts": alerts.alerts,
    "rights": operator.rights,
    "metrics": operator.metrics,
    "job-metrics": operator.job_metrics,
    "time-kinds": operator.time_kinds,
    "start-parts": operator.start_parts,
    "library-names": library.names,
    "library-errors": library.errors,
    "rooms": rooms.picture,
}


def main() -> int:
    """Updates all generated files. With `--check`, only lists the files that are out of date."""
    parser = argparse.ArgumentParser(description="Write what the documents say about the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if anything is out of date")
    check = parser.parse_args().check
    stale = [(file, text) for file, text in _generated() if not file.exists() or file.read_text("utf-8") != text]
    for file, text in stale:
        if not check:
            file.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{'out of date' if check else 'written'}: {file.relative_to(ROOT)}\n")
    return 1 if check and stale else 0


def _generated() -> Iterator[tuple[Path, str]]:
    """All files with generated content, and the text that each should have."""
    yield ROOT / "deploy" / "ddpjob.schema.json", json.dumps(job_schema(), indent=1) + "\n"
    yield ROOT / "deploy" / "crd.yaml", _yaml(crd())
    yield chart.CLUSTER_CHART / "files" / "crd-spec.yaml", _yaml({"spec": crd()["spec"]})
    for name, dashboard in DASHBOARDS.items():
        yield chart.CHART / "files" / "dashboards" / f"{name}.json", dashboard()
    readmes = (chart.CHART / "README.md", chart.CLUSTER_CHART / "README.md", ROOT / "CONTRIBUTING.md")
    for page in (*sorted((ROOT / "docs").rglob("*.md")), *readmes):
        yield page, SECTION.sub(_section, page.read_text(encoding="utf-8"))


def _yaml(document: object) -> str:
    # libyaml's dumper is used because the CRD is half a megabyte: it takes half the time for the same text.
    text: str = yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, width=120, allow_unicode=True)
    return text


def _section(match: re.Match[str]) -> str:
    begin, name, end = match.groups()
    return f"{begin}\n{SECTIONS[name]()}\n{end}"


if __name__ == "__main__":
    sys.exit(main())
