"""What the pods of a program have on a cluster, from what a person types."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import BadInputError, DDPJob
from ddpjob_operator.api.entrypoint import Options, document_of, script
from ddpjob_operator.api.launchers import Size
from ddpjob_operator.cli.cluster.pod_options import PodOptions, checkpoint_on, with_pod_options
from ddpjob_operator.client.archive import File, pack

MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "a quantity that is none": ({"memory": "16 GB"}, "--memory 16 GB: must be a Kubernetes quantity"),
    "less than nothing": ({"cpu": "-1"}, "--cpu -1: must be a Kubernetes quantity"),
    "fewer GPUs than none": ({"gpus_per_node": -1}, "--gpus-per-node -1: must not be less than 0"),
    "more GPUs than a node may have": ({"gpus_per_node": 65}, "must be a whole number of GPUs, at most 64"),
    "a volume without a place": ({"volumes": ["data"]}, "--volume data: must be CLAIM:/path"),
    "a volume at no absolute path": ({"volumes": ["data:here"]}, "--volume data:here: must be CLAIM:/path"),
    "a volume of nothing": ({"volumes": [":/data"]}, "--volume :/data: must be CLAIM:/path"),
    "an image without a place": ({"image_volumes": ["code:1"]}, "--image-volume code:1: must be IMAGE:/path"),
    "two volumes at one place": ({"volumes": ["a:/data", "b:/data"]}, "two volumes cannot be mounted at /data"),
    "a Secret of kubectl's": ({"secrets": ["secret/store"]}, "--env-from secret/store: must be the name of a Secret"),
    "a Secret without a name": ({"secrets": ["store", ""]}, "--env-from : must be the name of a Secret"),
    "a Secret with a capital letter": ({"secrets": ["Store"]}, "--env-from Store: must be the name of a Secret"),
    "a queue that is no label": ({"queue": "no label!"}, "--queue no label!: must be the name of a queue"),
    "a class that is no label": (
        {"class_name": "no label!"},
        "--class no label!: must be the name of a class, such as canary",
    ),
}


def document(checkpoint: str | None = None) -> dict[str, Any]:
    options = Options(None, size=Size(2), checkpoint=checkpoint_on(checkpoint))
    return document_of(script("train.py", ["--lr", "0.1"]), options)


def test_a_program_has_what_is_asked_for_and_its_code_as_its_working_directory() -> None:
    needs = PodOptions(
        8,
        "16",
        "64Gi",
        ["data:/data"],
        ["registry.example.com:5000/code:2:/lib"],
        "training",
        {"configMap": {"name": "ddpjob-code-1"}},
        class_name="canary",
    )
    placed = with_pod_options(document("ckpt:/checkpoints"), needs)
    spec = placed["spec"]
    pod = spec["template"]["spec"]
    assert placed["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "training", "ddpjob.dev/class": "canary"}
    (unpack,) = pod.pop("initContainers")
    assert yaml.safe_load(yaml.safe_dump(spec)) == yaml.safe_load("""
        nodes: 2
        checkpoint: {path: /checkpoints, volume: {persistentVolumeClaim: {claimName: ckpt}}}
        template:
          spec:
            containers:
              - name: trainer
                command: [ddpjob-supervise, train.py]
                args: [--lr, "0.1"]
                resources: &resources
                  requests: {cpu: "16", memory: 64Gi, nvidia.com/gpu: 8}
                  limits: {cpu: "16", memory: 64Gi, nvidia.com/gpu: 8}
                workingDir: /ddpjob/code
                volumeMounts:
                  - {name: code, mountPath: /ddpjob/code}
                  - {name: code-archive, mountPath: /ddpjob/archive, readOnly: true}
                  - {name: volume-0, mountPath: /data}
                  - {name: image-volume-0, mountPath: /lib}
            volumes:
              - {name: code, emptyDir: {}}
              - {name: code-archive, configMap: {name: ddpjob-code-1}}
              - {name: volume-0, persistentVolumeClaim: {claimName: data}}
              - {name: image-volume-0, image: {reference: "registry.example.com:5000/code:2"}}
    """)
    assert unpack["command"][-2:] == ["/ddpjob/archive/code.zip", "/ddpjob/code"]
    assert "image" not in unpack, "it has the trainer's"
    room = {"cpu": "16", "memory": "64Gi"}
    assert unpack["resources"] == {"requests": room, "limits": room}
    assert DDPJob.from_dict(placed).spec.resolved_procs_per_node() == 8


def test_packages_are_installed_before_the_trainer_in_its_room_but_without_its_gpus() -> None:
    options = Options(None, env=["PYTHONPATH=/lib", "PIP_INDEX_URL=https://pypi.example.com/simple"])
    needs = PodOptions(8, "16", "64Gi", ["data:/data"], packages=["einops>=0.8", "a @ https://example.com/$(a).whl"])
    pod = with_pod_options(document_of(script("train.py"), options), needs)["spec"]["template"]["spec"]
    (install,) = pod["initContainers"]
    assert install.pop("command")[-1] == "/ddpjob/packages"
    assert install == yaml.safe_load("""
        name: install-packages
        args: ["einops>=0.8", "a @ https://example.com/$$(a).whl"]
        env: &env
          - {name: PIP_INDEX_URL, value: https://pypi.example.com/simple}
          - {name: PYTHONPATH, value: /lib:/ddpjob/packages/site}
        resources: {requests: &room {cpu: "16", memory: 64Gi}, limits: *room}
        terminationMessagePolicy: FallbackToLogsOnError
        volumeMounts:
          - {name: volume-0, mountPath: /data}
          - {name: packages, mountPath: /ddpjob/packages}
    """)
    (trainer,) = pod["containers"]
    assert (trainer["env"], "workingDir" in trainer) == (install["env"], False)
    assert trainer["volumeMounts"][-1] == {"name": "packages", "mountPath": "/ddpjob/packages", "readOnly": True}
    assert pod["volumes"][0] == {"name": "packages", "emptyDir": {}}


def test_without_a_search_path_of_the_users_own_that_of_the_image_is_not_hidden_from_what_installs() -> None:
    pod = with_pod_options(document(), PodOptions(1, packages=["einops"]))["spec"]["template"]["spec"]
    (install,), (trainer,) = pod["initContainers"], pod["containers"]
    assert not {"env", "resources"} & install.keys()
    assert trainer["env"] == [{"name": "PYTHONPATH", "value": "/ddpjob/packages/site"}]


def test_the_trainer_and_what_installs_its_packages_get_the_variables_of_secrets() -> None:
    wanted = PodOptions(
        secrets=["store", "tokens", "store"], code={"configMap": {"name": "ddpjob-code-1"}}, packages=["einops"]
    )
    pod = with_pod_options(document(), wanted)["spec"]["template"]["spec"]
    unpack, install = pod["initContainers"]
    (trainer,) = pod["containers"]
    assert trainer["envFrom"] == [{"secretRef": {"name": "store"}}, {"secretRef": {"name": "tokens"}}]
    assert (install["envFrom"], "envFrom" in unpack) == (trainer["envFrom"], False)


@pytest.mark.parametrize(
    ("path", "code", "said"), [(os.environ["PATH"], 0, ""), ("/nowhere", 2, "there is no python in the image")]
)
def test_the_code_is_unpacked_by_the_images_own_python(tmp_path: Path, path: str, code: int, said: str) -> None:
    placed = with_pod_options(document(), PodOptions(code={"configMap": {"name": "ddpjob-code-1"}}))
    command = placed["spec"]["template"]["spec"]["initContainers"][0]["command"]
    assert not any("$(" in word for word in command), "Kubernetes would expand it"
    (tmp_path / "code.zip").write_bytes(pack([File("train.py", b"print(1)")]).data)
    places = [str(tmp_path / "code.zip"), str(tmp_path / "code")]
    words = [shutil.which(command[0]), *command[1:-2], *places]
    done = subprocess.run(words, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr) == (code, True), done.stderr
    assert (tmp_path / "code" / "train.py").exists() == (code == 0)


def test_what_is_not_asked_for_does_not_stand_there() -> None:
    trainer = {"name": "trainer", "command": ["ddpjob-supervise", "train.py"], "args": ["--lr", "0.1"]}
    assert with_pod_options(document(), PodOptions())["spec"] == {
        "nodes": 2,
        "checkpoint": {"path": "/checkpoints"},
        "template": {"spec": {"containers": [trainer]}},
    }


@pytest.mark.parametrize(("given", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_with_what_would_be_right(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError) as error:
        with_pod_options(document(), PodOptions(**given))
    assert said in str(error.value)


def test_a_checkpoint_without_a_colon_is_told() -> None:
    right = "must be CLAIM:/path, where CLAIM is mounted at /path, or a URL such as s3://BUCKET/PATH"
    with pytest.raises(BadInputError, match=rf"--checkpoint ckpt: {right}"):
        checkpoint_on("ckpt")


def test_checkpoints_in_an_object_store_have_a_url_and_no_volume() -> None:
    assert document("s3://bucket/train")["spec"]["checkpoint"] == {"path": "s3://bucket/train"}
    with pytest.raises(
        BadInputError, match=r"^--checkpoint: must be an absolute path, or a URL such as s3://"
    ) as error:
        document("s3://me:wJalrXUtnFEMI@bucket/train")
    assert "wJalrXUtnFEMI" not in str(error.value)
