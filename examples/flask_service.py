"""A Flask service. Serve it by: gunicorn flask_service:app"""

import time

from flask import Flask, stream_with_context

import eventprof

app = Flask(__name__)
app.wsgi_app = eventprof.WSGIMiddleware(app.wsgi_app)


@app.get("/orders/<int:number>")
def order(number):
    with eventprof.label(user="anna"):
        return {"order": number, "price": price(number)}


@app.get("/lines")
def lines():
    def parts():
        for line in range(3):
            time.sleep(0.005)
            yield f"line {line}\n"

    return stream_with_context(parts())


def price(number):
    with eventprof.span("price"):
        return sum(range(number * 1000))


if __name__ == "__main__":
    client = app.test_client()
    with eventprof.record() as rec:
        for path in ("/orders/3", "/lines", "/nothing"):
            client.get(path)
    for row in rec.trace.requests[["method", "route", "status", "most_in"]]:
        print(row.method, row.route, row.status, row.most_in)
    (span,) = (span for span in rec.trace.spans if span.name == "price")
    print("price:", span.route, span.user)
