"""Servers that break one rule each, made of the simulated server: rule -> class."""

import asyncio
import json
from dataclasses import replace

from mme_local.dataplane import simulated_server
from mme_local.dataplane.simulated_server import Answer, Connection, Container

WRONG: dict[str, type[Container]] = {}


def wrong(rule):
    def add(kind):
        WRONG[rule] = kind
        return kind

    return add


def answered(status):
    return Answer(status, b"{}")


def document(answer):
    return json.loads(answer.body)


def as_json(answer, content):
    return replace(answer, body=json.dumps(content).encode())


@wrong("ping.ok")
class IsNeverHealthy(Container):
    async def ping(self):
        return answered(500)


@wrong("server.keeps-connection")
class ClosesConnections(Container):
    """Its connections end after an answer: see `OneAnswer`."""


class OneAnswer(Connection):
    async def serve(self, reader, writer):
        request = await simulated_server._read(reader, writer)
        if request is not None:
            answer = await self._container.handle(request)
            head = f"HTTP/1.1 {answer.status} -\r\nContent-Type: {answer.content_type}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + answer.body)
            await writer.drain()
        writer.close()


@wrong("server.unknown-path")
class KnowsEveryPath(Container):
    async def handle(self, request):
        answer = await super().handle(request)
        return answered(200) if "no-such-path" in request.path else answer


class Malformed(Container):
    malformed = 400

    async def handle(self, request):
        if request.method == "POST" and request.path == "/models":
            try:
                json.loads(request.body)
            except ValueError:
                return self.on_malformed()
        return await super().handle(request)

    def on_malformed(self):
        return answered(self.malformed)


@wrong("server.survives-malformed")
class IsNotHealthyAfterAMalformedLoad(Malformed):
    harmed = False

    def on_malformed(self):
        self.harmed = True
        return answered(400)

    async def ping(self):
        if self.harmed:
            self.harmed = False
            return answered(503)
        return await super().ping()


@wrong("load.malformed")
class BlamesItselfForAMalformedLoad(Malformed):
    malformed = 500


@wrong("load.incomplete")
class BlamesItselfForAnIncompleteLoad(Container):
    async def load(self, request):
        answer = await super().load(request)
        return replace(answer, status=500) if answer.status == 400 and b"{no" not in request.body else answer


class Loads(Container):
    """Changes what a load is answered."""

    def changed(self, status, name):
        return status

    async def load(self, request):
        answer = await super().load(request)
        try:
            name = json.loads(request.body)["model_name"]
        except (ValueError, KeyError):
            return answer
        return replace(answer, status=self.changed(answer.status, name))


@wrong("load.ok")
class AnswersALoadWith201(Loads):
    def changed(self, status, name):
        return 201 if status == 200 else status


@wrong("load.again")
class LoadsTwice(Loads):
    def changed(self, status, name):
        return 200 if status == 409 else status


@wrong("load.again-keeps")
class ForgetsAModelThatIsLoadedAgain(Loads):
    def changed(self, status, name):
        if status == 409 and self.models[name].ready:
            asyncio.get_running_loop().call_soon(self.models.pop, name, None)
        return status


@wrong("load.ready")
class IsReadyLater(Container):
    """A model answers its second invocation only."""

    def __init__(self, script):
        super().__init__(script)
        self.asked = set()

    async def invoke(self, name, request):
        if name in self.models and name not in self.asked and self.models[name].ready:
            self.asked.add(name)
            return answered(503)
        return await super().invoke(name, request)


class Broken(Container):
    """Keeps what could not be loaded."""

    answer_to_broken = 500

    async def load(self, request):
        answer = await super().load(request)
        if answer.status == 500:
            answer = replace(answer, status=self.answer_to_broken)
        return answer


@wrong("load.broken")
class LoadsBrokenModels(Broken):
    answer_to_broken = 507


class Ghosts(Container):
    """What could not be loaded stays as a name without a model."""

    status = 0

    def __init__(self, script):
        super().__init__(script)
        self.ghosts = set()

    async def load(self, request):
        try:
            name = json.loads(request.body).get("model_name")
        except ValueError:
            return await super().load(request)
        if name in self.ghosts:
            return answered(409)
        answer = await super().load(request)
        if answer.status == self.status and name:
            self.ghosts.add(name)
        return answer

    async def describe(self, name):
        return answered(200) if name in self.ghosts else await super().describe(name)

    async def unload(self, name):
        if name in self.ghosts:
            self.ghosts.remove(name)
            return answered(200)
        return await super().unload(name)


@wrong("load.broken-leaves-nothing")
class KeepsBrokenModels(Ghosts):
    status = 500


@wrong("load.too-large-leaves-nothing")
class KeepsModelsThatDoNotFit(Ghosts):
    status = 507


@wrong("load.missing")
class IsOutOfMemoryWithoutAFolder(Loads):
    def changed(self, status, name):
        return 507 if status == 404 else status


@wrong("load.missing-leaves-nothing")
class KeepsMissingModels(Ghosts):
    status = 404


@wrong("load.names")
class IgnoresCase(Container):
    async def load(self, request):
        name = json.loads(request.body).get("model_name", "") if request.body.startswith(b'{"') else ""
        if name.lower() in {known.lower() for known in self.models}:
            return answered(409)
        return await super().load(request)


@wrong("load.concurrent")
class LoadsOneAtATime(Container):
    busy = False

    async def load(self, request):
        if self.busy:
            return answered(503)
        self.busy = True
        try:
            await asyncio.sleep(0.02)
            return await super().load(request)
        finally:
            self.busy = False


@wrong("load.concurrent-same")
class LoadsTheSameTwice(Loads):
    """Only a model that is ready is there already."""

    async def load(self, request):
        name = json.loads(request.body).get("model_name") if request.body.startswith(b'{"') else None
        if name in self.models and not self.models[name].ready:
            return answered(200)
        return await super().load(request)

    async def pause(self, seconds):
        await asyncio.sleep(0.02)


@wrong("ping.while-loading")
class IsNotHealthyWhileItLoads(Container):
    loading = 0

    async def load(self, request):
        self.loading += 1
        try:
            await asyncio.sleep(0.15)
            return await super().load(request)
        finally:
            self.loading -= 1

    async def ping(self):
        return answered(503 if self.loading else 200)


@wrong("list.ok")
class ListsLikeTheDocumentation(Container):
    """The pages of the Developer Guide show a comma after the last model."""

    async def list_models(self, request):
        return replace(await super().list_models(request), body=b'{"models": [{"modelName": "m", "modelUrl": "/m"},]}')


@wrong("list.entries")
class ListsNoFolders(Container):
    async def list_models(self, request):
        answer = await super().list_models(request)
        content = document(answer)
        for entry in content["models"]:
            del entry["modelUrl"]
        return as_json(answer, content)


@wrong("list.pages")
class RepeatsItsFirstPage(Container):
    async def list_models(self, request):
        return await super().list_models(replace(request, query={**request.query, "next_page_token": 0}))


@wrong("list.unloaded")
class ListsWhatIsUnloaded(Container):
    def __init__(self, script):
        super().__init__(script)
        self.gone = []

    async def unload(self, name):
        model = self.find(name)
        if model is not None:
            self.gone.append(model.document())
        return await super().unload(name)

    async def list_models(self, request):
        answer = await super().list_models(request)
        gone, self.gone = self.gone, []
        content = document(answer)
        content["models"] += gone if "limit" not in request.query else []
        return as_json(answer, content)


@wrong("list.json-type")
class ListsAsText(Container):
    async def list_models(self, request):
        return replace(await super().list_models(request), content_type="text/plain")


@wrong("describe.ok")
class DescribesNothing(Container):
    async def describe(self, name):
        answer = await super().describe(name)
        return as_json(answer, {}) if answer.status == 200 else answer


@wrong("describe.unknown")
class DescribesWhatIsUnknown(Container):
    async def describe(self, name):
        return replace(await super().describe(name), status=200)


@wrong("unload.ok")
class UnloadsLater(Container):
    async def unload(self, name):
        answer = await super().unload(name)
        return replace(answer, status=202) if answer.status == 200 else answer


@wrong("unload.unknown")
class UnloadsWhatIsUnknown(Container):
    async def unload(self, name):
        return replace(await super().unload(name), status=200)


@wrong("unload.gone")
class AnswersOnceMoreAfterItsUnload(Container):
    def __init__(self, script):
        super().__init__(script)
        self.leaving = {}

    async def unload(self, name):
        model = self.find(name)
        if model is not None:
            self.leaving[name] = model
        return await super().unload(name)

    async def invoke(self, name, request):
        return answered(200) if self.leaving.pop(name, None) else await super().invoke(name, request)


@wrong("unload.others")
class UnloadsTheOldest(Container):
    async def unload(self, name):
        if self.find(name) is None:
            return await super().unload(name)
        return await super().unload(next(iter(self.models)))


@wrong("unload.reload")
class LoadsANameOnce(Container):
    """What was unloaded cannot be loaded again."""

    def __init__(self, script):
        super().__init__(script)
        self.gone = set()

    async def load(self, request):
        name = json.loads(request.body).get("model_name") if request.body.startswith(b'{"') else None
        return answered(500) if name in self.gone else await super().load(request)

    async def unload(self, name):
        self.gone.add(name)
        return await super().unload(name)


class Invocations(Container):
    def refuses(self, name, request):
        return False

    async def invoke(self, name, request):
        if self.find(name) is not None and self.refuses(name, request):
            return answered(500)
        return await super().invoke(name, request)


@wrong("invoke.unknown")
class AnswersForWhatIsUnknown(Container):
    async def invoke(self, name, request):
        answer = await super().invoke(name, request)
        return replace(answer, status=400) if answer.status == 404 else answer


@wrong("invoke.ok")
class AnswersTwice(Invocations):
    """The third invocation of a model fails."""

    def __init__(self, script):
        super().__init__(script)
        self.counts = {}

    def refuses(self, name, request):
        self.counts[name] = self.counts.get(name, 0) + 1
        return self.counts[name] > 2


@wrong("invoke.headers")
class DislikesAttributes(Invocations):
    def refuses(self, name, request):
        return "x-amzn-sagemaker-custom-attributes" in request.headers


@wrong("invoke.target-model")
class GoesByTheTargetModel(Invocations):
    def refuses(self, name, request):
        return request.headers["x-amzn-sagemaker-target-model"] != name


@wrong("invoke.concurrent")
class AnswersOneAtATime(Container):
    busy = False

    async def invoke(self, name, request):
        if self.busy:
            return answered(503)
        self.busy = True
        try:
            await asyncio.sleep(0.02)
            return await super().invoke(name, request)
        finally:
            self.busy = False


@wrong("invoke.while-loading")
class AnswersNothingWhileItLoads(Invocations):
    loading = False

    async def load(self, request):
        self.loading = True
        await asyncio.sleep(0.15)
        self.loading = False
        return await super().load(request)

    def refuses(self, name, request):
        return self.loading


@wrong("invoke.after-nonsense")
class IsConfusedByNonsense(Invocations):
    def __init__(self, script):
        super().__init__(script)
        self.confused = set()

    def refuses(self, name, request):
        if not request.body:
            self.confused.add(name)
        return name in self.confused


@wrong("invoke.big")
class TakesSmallBodies(Container):
    async def invoke(self, name, request):
        return answered(413) if len(request.body) > 6_000_000 else await super().invoke(name, request)


@wrong("load.too-large")
class DoesNotSayThatItIsFull(Loads):
    def changed(self, status, name):
        return 500 if status == 507 else status


@wrong("load.full")
class IsNeverFull(Container):
    """Only a model that is larger than everything does not fit."""

    async def load(self, request):
        models, self.models = self.models, {}
        try:
            if json.loads(request.body)["model_name"] in models:
                return answered(409)
        except (ValueError, KeyError):
            pass
        finally:
            self.models = models
        return await super().load(request)

    def behaviour(self, folder):
        behaviour = super().behaviour(folder)
        return behaviour if behaviour.bytes > 100 else replace(behaviour, bytes=0)


@wrong("load.full-recovers")
class RefusesForEver(Container):
    """What did not fit once never does."""

    def __init__(self, script):
        super().__init__(script)
        self.refused = set()

    async def load(self, request):
        answer = await super().load(request)
        if answer.status in (200, 507):
            name = json.loads(request.body)["model_name"]
            if answer.status == 507 or name in self.refused:
                self.refused.add(name)
                self.models.pop(name, None)
                return answered(507)
        return answer


@wrong("ping.after-all")
class IsNotHealthyInTheEnd(Container):
    pings = 0

    async def ping(self):
        self.pings += 1
        return answered(200 if self.pings <= 2 else 503)


__all__ = ["WRONG", "OneAnswer"]
