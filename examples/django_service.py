"""A Django site of one file. Serve it by: python django_service.py runserver"""

import sys

import django
from django.conf import settings
from django.http import JsonResponse, StreamingHttpResponse
from django.urls import path

import eventprof

settings.configure(
    ALLOWED_HOSTS=["*"],
    MIDDLEWARE=["eventprof.plugins.requests.django_middleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not one",
)
django.setup()


def order(request, number):
    request.eventprof_request.add(user="anna")
    return JsonResponse({"order": number, "price": price(number)})


def price(number):
    with eventprof.span("price"):
        return sum(range(number * 1000))


async def lines(request):
    async def parts():
        for line in range(3):
            yield f"line {line}\n"

    return StreamingHttpResponse(parts())


urlpatterns = [path("orders/<int:number>", order), path("lines", lines)]

if __name__ == "__main__":
    if sys.argv[1:]:
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
        raise SystemExit

    import asyncio

    from django.test import AsyncClient, Client

    async def ask():
        client = AsyncClient()
        await client.get("/orders/4")
        answer = await client.get("/lines")
        [part async for part in answer.streaming_content]
        answer.close()

    with eventprof.record() as rec:
        Client().get("/orders/3")
        Client().get("/nothing")
        asyncio.run(ask())
    requests = rec.trace.requests
    for row in requests[["method", "route", "status"]]:
        print(row.method, row.route, row.status)
    for span in rec.trace.spans:
        if span.name == "price":
            print("price:", span.route, span.user)
