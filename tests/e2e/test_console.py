"""The console in a real browser: live during a thousand loads and evictions, by keyboard, in light and dark, on a small screen."""

import io
import json
import os
import random
import shutil
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from mme_local import FailLoad, KillInstance, LocalCloud, LocalSettings, SlowDownload
from mme_local.dataplane import DataPlaneSettings
from tests.e2e.support import wait_until

pytestmark = pytest.mark.e2e

MIB = 1024 * 1024
MODELS, INSTANCES, LOADS = 420, 3, 1000
TENANTS = ("acme", "globex", "initech", "umbrella", "hooli", "stark", "wayne", "wonka")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


class Fleet:
    """A cloud with one endpoint of simulated servers, and callers that ask for many models."""

    def __init__(self, cloud):
        self.cloud, self.chance = cloud, random.Random(11)
        self.models = [f"{TENANTS[int(8 * self.chance.random() ** 2)]}/model-{number:03d}/v1" for number in range(MODELS)]
        s3, iam, sagemaker = (cloud.client(name) for name in ("s3", "iam", "sagemaker"))
        with closing(s3), closing(iam), closing(sagemaker):
            s3.create_bucket(Bucket="models")
            for name in self.models:
                s3.put_object(Bucket="models", Key=f"models/{name}.tar.gz", Body=artifact(int(self.chance.lognormvariate(17.6, 0.7))))
            trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
            document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
            role = iam.create_role(RoleName="endpoint", AssumeRolePolicyDocument=document)["Role"]["Arn"]
            iam.attach_role_policy(RoleName="endpoint", PolicyArn="arn:aws:iam::aws:policy/AmazonS3FullAccess")
            image = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"
            container = {"Image": image, "Mode": "MultiModel", "ModelDataUrl": "s3://models/models/"}
            sagemaker.create_model(ModelName="m", ExecutionRoleArn=role, PrimaryContainer=container)
            variant = {"VariantName": "AllTraffic", "ModelName": "m", "InstanceType": "ml.m5.xlarge", "InitialInstanceCount": INSTANCES}
            sagemaker.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
            sagemaker.create_endpoint(EndpointName="mme-xgboost", EndpointConfigName="c")
            sagemaker.get_waiter("endpoint_in_service").wait(EndpointName="mme-xgboost", WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        scaling = cloud.client("application-autoscaling")
        with closing(scaling):
            scaling.register_scalable_target(
                ServiceNamespace="sagemaker",
                ResourceId="endpoint/mme-xgboost/variant/AllTraffic",
                ScalableDimension="sagemaker:variant:DesiredInstanceCount",
                MinCapacity=2,
                MaxCapacity=6,
            )
        self.stopped = threading.Event()

    def endpoint(self):
        (endpoint,) = self.cloud.status()["endpoints"]
        return endpoint

    def call(self, seed):
        """One caller, until told to stop: most requests for a few models, many for the rest."""
        chance, client = random.Random(seed), self.cloud.client("sagemaker-runtime")
        with closing(client):
            while not self.stopped.is_set():
                name = self.models[min(MODELS - 1, int(MODELS * chance.random() ** 2.2))]
                client.invoke_endpoint(EndpointName="mme-xgboost", TargetModel=f"{name}.tar.gz", Body=b"1,2,3")


def artifact(size):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        content = json.dumps({"bytes": size}).encode()
        member = tarfile.TarInfo("simulated.json")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture(scope="module")
def fleet():
    data_plane = DataPlaneSettings(
        servers={"*": "simulated"},
        simulation={"load_seconds": [0.005, 0.05], "invoke_seconds": [0.001, 0.01]},
        instance_memory_bytes=2048 * MIB,
        instance_disk_bytes=16_384 * MIB,
        model_overhead_bytes=0,
    )
    with LocalCloud(settings=LocalSettings(data_plane=data_plane, faults=True)) as cloud:
        yield Fleet(cloud)


class Visit:
    """A browser's page, with everything that it complained about and asked for."""

    def __init__(self, context, url):
        self.page, self.complaints, self.asked = context.new_page(), [], []
        self.page.on("console", lambda message: self.complaints.append(message.text) if message.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(f"{url}/_console")
        self.page.wait_for_selector("#live[data-state=live]")

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = shutil.which("chromium")
    assert chromium, "no chromium on the PATH: make browser"
    with sync_playwright() as playwright:
        yield lambda **options: playwright.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"), executable_path=chromium, args=FLAGS, **{"viewport": WIDE, **options}
        )


@pytest.fixture
def visit(browser, fleet, request):
    context = browser(**getattr(request, "param", {}))
    visit = Visit(context, fleet.cloud.endpoint_url)
    yield visit
    context.close()
    assert visit.complaints == []
    assert {url.split("/")[2] for url in visit.asked} == {fleet.cloud.endpoint_url.split("/")[2]}, "nothing from elsewhere"


GAPS = """
() => {
  window.gaps = [];
  let last = performance.now();
  const tick = now => { window.gaps.push(now - last); last = now; requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
}
"""


CONTRAST = r"""
() => {
  const channel = value => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = colour => {
    const [red, green, blue] = colour.match(/[\d.]+/g).map(Number);
    return 0.2126 * channel(red) + 0.7152 * channel(green) + 0.0722 * channel(blue);
  };
  const ground = element => {
    for (; element; element = element.parentElement) {
      const colour = getComputedStyle(element).backgroundColor;
      if (colour.startsWith("rgb(")) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const ratio = element => {
    const [one, other] = [light(getComputedStyle(element).color), light(ground(element))];
    return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  };
  return [...document.querySelectorAll("p, span, td, th, b, small, output, h2, h3, time, summary, figcaption, button")]
    .filter(element => element.checkVisibility() && !element.closest(".hidden, .tip"))
    .filter(element => [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim()))
    .map(element => [ratio(element), element.className, element.textContent.slice(0, 40)])
    .filter(([value]) => value < 4.5);
}
"""
FOCUSED = """
() => {
  const element = document.activeElement;
  window.visited ??= new Set();
  if (element === document.body || window.visited.has(element)) return null;
  window.visited.add(element);
  const outlined = element.matches("#theme input") ? element.nextElementSibling : element;
  return [element.tagName, element.textContent.trim(), getComputedStyle(outlined).outlineStyle !== "none"];
}
"""
SMALL = """
() => [...document.querySelectorAll("p, span, td, small, button")]
  .filter(element => parseFloat(getComputedStyle(element).fontSize) < 11).length
"""


def shown(visit):
    """How many loads the page says there were."""
    return int(visit.text("#figure-loads small").split(" in all")[0].replace(",", "").replace("K", "000").split(".")[0] or 0)


def test_the_page_stays_live_during_a_thousand_loads_and_evictions(fleet, visit):
    visit.page.evaluate(GAPS)
    fleet.cloud.faults.put(SlowDownload(model="wonka/*", seconds=0.05))
    before = fleet.endpoint()
    seen = set()
    with ThreadPoolExecutor() as pool:
        callers = [pool.submit(fleet.call, seed) for seed in range(4)]
        try:
            while (now := fleet.endpoint())["cold_loads"] < before["cold_loads"] + LOADS or now["evictions"] < before["evictions"] + LOADS:
                assert visit.page.locator("#live").get_attribute("data-state") == "live"
                seen.add(visit.text("#log li p"))
                visit.page.wait_for_timeout(500)
            save(visit)
        finally:
            fleet.stopped.set()
    assert [caller.result() for caller in callers] == [None] * 4
    gaps = sorted(visit.page.evaluate("window.gaps"))
    assert gaps[len(gaps) // 2] < 50, "half of the frames come in time"
    assert gaps[-1] < 2000, "it never stands still"
    assert len(seen) > 5, "the log moves"
    assert visit.page.locator("#log li").count() <= 200
    after = fleet.endpoint()
    wait_until(lambda: shown(visit) >= min(after["cold_loads"], 1000), what="the last count on the page")
    for instance in after["instances"]:
        label = visit.page.locator(f"canvas[aria-label^='Memory of {instance['id']}:']")
        wait_until(lambda label=label, n=instance["model_count"]: f", {n} models" in label.get_attribute("aria-label"), what="the models")
        assert shown_models(visit, label) == {model["target_model"].removesuffix(".tar.gz") for model in instance["models"]}
    assert visit.text("#tenants tbody tr td").strip() in TENANTS


def shown_models(visit, canvas):
    """The models of an instance's memory, one after the other by keyboard."""
    canvas.focus()
    names = []
    while not names or names[-1] not in names[:-1]:
        visit.page.keyboard.press("ArrowRight")
        names.append(visit.text("#announce").split(", ")[0])
    return set(names)


def save(visit):
    """Pictures for the documentation, where they are asked for."""
    folder = os.environ.get("MME_CONSOLE_PICTURES")
    if folder is None:
        return
    visit.page.wait_for_timeout(4000)
    for scheme in ("light", "dark"):
        visit.page.emulate_media(color_scheme=scheme)
        visit.page.wait_for_timeout(1200)
        visit.page.screenshot(path=Path(folder) / f"console-{scheme}.png")
    visit.page.emulate_media(color_scheme="light")


def test_a_lost_instance_and_a_fault_are_told(fleet, visit):
    fault = fleet.cloud.faults.put(FailLoad(model="nobody/*", status=507))
    assert fleet.cloud.faults.put(KillInstance(endpoint="mme-xgboost", count=1)).struck == 1
    lost = visit.page.locator("#log li[data-tone=bad]", has_text="was lost").first
    lost.wait_for()
    assert "was lost" in visit.text("#announce")
    visit.page.locator("#log li", has_text="is up").first.wait_for()
    visit.page.locator("#faults li", has_text="fail-load model nobody/*").first.wait_for()
    visit.page.locator(".instance", has_text="1 restart").first.wait_for()
    fleet.cloud.faults.remove(fault.id)
    visit.page.locator("#faults li[data-ended]", has_text="fail-load model nobody/*").first.wait_for()


def test_everything_can_be_reached_and_used_by_keyboard(visit):
    page, names = visit.page, []
    page.locator(".instance").nth(INSTANCES - 1).wait_for()
    for _ in range(60):
        page.keyboard.press("Tab")
        if (focused := page.evaluate(FOCUSED)) is None:
            break
        names.append(focused)
    assert names[0] == ["A", "Skip to the fleets", True]
    assert all(outlined for *_, outlined in names), "the focus is seen everywhere"
    assert [tag for tag, *_ in names].count("CANVAS") == [text for _, text, _ in names].count("Models") == INSTANCES
    assert {"Loads", "Evictions", "Errors", "Instances", "Events", "Scaling", "Alarms", "Pause"} <= {text for _, text, _ in names}
    assert "OL" in [tag for tag, *_ in names], "the log scrolls by keyboard"
    page.keyboard.press("Escape")
    canvas = page.locator(".memory canvas:not([aria-label*=', 0 models'])").first
    canvas.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".tip:visible").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".tip:visible").count() == 0
    page.keyboard.press("Enter")
    page.locator(".models table tr").first.wait_for()
    page.locator(".models input:visible").fill("no such model")
    page.locator(".models", has_text="No model.").first.wait_for()
    page.locator("#pause").focus()
    page.keyboard.press("Space")
    assert page.locator("#pause").get_attribute("aria-pressed") == "true"
    loads = page.locator("#filters button", has_text="Loads")
    loads.focus()
    page.keyboard.press("Enter")
    assert loads.get_attribute("aria-pressed") == "false"
    assert page.locator("#log li[data-kind=loads]:visible").count() == 0


def test_light_and_dark_follow_the_system_and_the_switch(visit):
    page = visit.page

    def ground():
        return page.evaluate("getComputedStyle(document.documentElement).backgroundColor")

    page.emulate_media(color_scheme="light")
    light = ground()
    page.emulate_media(color_scheme="dark")
    dark = ground()
    assert light != dark
    page.locator("#theme input[value=light]").check(force=True)
    assert ground() == light
    page.reload()
    page.wait_for_selector("#live[data-state=live]")
    assert ground() == light, "the choice is remembered"
    page.locator("#theme input[value=auto]").check(force=True)
    assert ground() == dark


def test_text_is_readable_in_both(visit):
    for scheme in ("light", "dark"):
        visit.page.emulate_media(color_scheme=scheme)
        assert visit.page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("visit", [{"viewport": NARROW}, {"viewport": WIDE}], indirect=True, ids=["390", "1280"])
def test_nothing_is_wider_than_the_screen(visit):
    visit.page.locator(".instance").first.wait_for()
    assert visit.page.evaluate("document.scrollingElement.scrollWidth - innerWidth") <= 0
    assert visit.page.evaluate(SMALL) == 0


@pytest.mark.parametrize("visit", [{"reduced_motion": "reduce"}], indirect=True)
def test_reduced_motion_is_respected(visit):
    assert visit.page.evaluate("getComputedStyle(document.querySelector('.dot')).animationName") == "none"


def test_a_cloud_that_goes_away_and_comes_back_is_noticed(browser, fleet):
    with LocalCloud() as cloud:
        context = browser()
        visit = Visit(context, cloud.endpoint_url)
        visit.page.locator("#empty").wait_for()
        port = int(cloud.endpoint_url.rsplit(":", 1)[1])
    visit.page.wait_for_selector("#live[data-state=lost]")
    with LocalCloud(port=port):
        visit.page.wait_for_selector("#live[data-state=live]")
    context.close()
