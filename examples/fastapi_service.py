"""A FastAPI service whose slow requests write a file. Serve it by: uvicorn fastapi_service:app"""

import asyncio
import time

from fastapi import FastAPI

import eventprof

flight = eventprof.flight_recorder("64 MiB", "10 s", folder="flights", memory=False)
service = FastAPI()


@service.get("/orders/{number}")
async def order(number: int) -> dict[str, int]:
    await asyncio.sleep(0.002)
    return {"order": number, "price": await asyncio.to_thread(price, number)}


@service.get("/reports/{year}")
async def report(year: int) -> dict[str, int]:
    time.sleep(0.4)  # by mistake: nothing else is answered meanwhile
    return {"year": year}


def price(number: int) -> int:
    with eventprof.span("price"):
        return sum(range(number * 1000))


app = eventprof.ASGIMiddleware(service, flight=flight, longer_than="250 ms")

if __name__ == "__main__":

    async def ask(path: str) -> None:
        """Send a request without a server."""
        scope = {
            "type": "http", "method": "GET", "path": path, "raw_path": path.encode(),
            "query_string": b"", "headers": [], "http_version": "1.1", "scheme": "http",
        }  # fmt: skip

        async def receive() -> dict[str, object]:
            return {"type": "http.request"}

        async def send(message: dict[str, object]) -> None:
            pass

        await app(scope, receive, send)

    async def ask_all() -> None:
        await asyncio.gather(*(ask(f"/orders/{number}") for number in (1, 2, 3)))
        await ask("/reports/2026")

    with flight:
        asyncio.run(ask_all())
        flight.wait()
    for written in flight.written:
        print(written.reason.partition(" took ")[0], "was slow:")
        requests = eventprof.open(written.path).requests
        for row in requests[["method", "route", "status", "most_in"]]:
            print(" ", row.method, row.route, row.status, row.most_in)
