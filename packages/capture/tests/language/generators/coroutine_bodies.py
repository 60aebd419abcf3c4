"""Bodies of coroutines and asynchronous generators, and what they await."""

import types


class Own(Exception):
    pass


class Step:
    """An awaitable that suspends once and answers what is sent."""

    def __init__(self, item):
        self.item = item

    def __await__(self):
        got = yield self.item
        return got


@types.coroutine
def step(item):
    got = yield item
    return got


class Manager:
    def __init__(self, log, swallow=False):
        self.log = log
        self.swallow = swallow

    async def __aenter__(self):
        self.log.append(("in", await Step("enter")))
        return 2

    async def __aexit__(self, *error):
        self.log.append(("out", error[0] and error[0].__name__, await step("exit")))
        return self.swallow


class Steps:
    def __init__(self, count):
        self.left = count

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        await step(("step", self.left))
        return self.left


async def low(x, log):
    try:
        log.append(await step("low"))
    except Own as error:
        log.append(repr(error))
    finally:
        log.append("low ends")
    return x * 2


async def items(x, log):
    try:
        for number in range(3):
            got = yield x + number
            log.append(got)
            await step(number)
    except Own as error:
        log.append(repr(error))
        yield x
    finally:
        log.append("items end")


async def plain(x, log):
    return x + 1


async def awaits(x, log):
    return await low(await plain(x, log), log) + 1


async def awaits_objects(x, log):
    log.append(await Step(x))
    return x + len(log)


async def catches(x, log):
    try:
        return await awaits(x, log)
    except Own as error:
        log.append(("caught", str(error)))
        return x
    finally:
        await Step("finally")


async def with_managers(x, log):
    async with Manager(log) as k, Manager(log, swallow=True):
        await step("inside")
        x = x * k
        raise Own("inside")
    return x


async def loops(x, log):
    async for k in Steps(2):
        x = x + k
    else:
        log.append("else")
    async for t in items(x, log):
        x = x + t
        if len(log) > 3:
            break
    return x


async def comprehends(x, log):
    found = [t * 2 async for t in items(x, log) if t.shape]
    numbers = {k: await plain(k, log) async for k in Steps(2)}
    return sum(found) + sum(numbers.values()) + sum({k async for k in Steps(2)})


async def inner_generators(x, log):
    doubled = (t * 2 async for t in items(x, log))
    log.append(await anext(Steps(0), "none"))
    return await anext(doubled) + await aiter(doubled).__anext__()


async def stops(x, log):
    raise StopIteration(x)


async def awaits_nothing(x, log):
    return await x


async def loops_over_nothing(x, log):
    async for _ in x:
        pass


async def enters_nothing(x, log):
    async with x:
        pass


async def gathers(x, log):
    waiting = [low(x + k, log) for k in range(2)]
    try:
        return sum([await each for each in waiting])
    finally:
        for each in waiting:
            each.close()


async def closes(x, log):
    made = items(x, log)
    t = await made.asend(None)
    await made.aclose()
    try:
        await made.__anext__()
    except StopAsyncIteration:
        log.append("closed")
    return t


async def throws(x, log):
    made = items(x, log)
    await anext(made)
    t = await made.athrow(Own("thrown"))
    try:
        await made.athrow(Own, "again")
    except Own as error:
        log.append(repr(error))
    return t
