"""Tasks of Celery: each run is a request. Work on them by: celery -A celery_tasks worker"""

from celery import Celery, Task

import eventprof


class Recorded(Task):
    """A task whose runs are requests; its id in Celery is the label task_id."""

    def __call__(self, *args, **keywords):
        with eventprof.request(self.name, method="task", task_id=self.request.id) as run:
            result = super().__call__(*args, **keywords)
            run.add(status="done")
            return result


app = Celery(
    "shop", broker="memory://", backend="cache+memory://", task_cls=Recorded, set_as_current=False
)


@app.task(name="shop.price")
def price(number):
    with eventprof.span("adding"):
        return sum(range(number * 1000))


if __name__ == "__main__":
    from celery.contrib.testing.worker import start_worker

    with eventprof.record() as rec:
        with start_worker(app, perform_ping_check=False, pool="solo"):
            prices = [price.delay(number) for number in (1, 2, 3)]
            print([answer.get(timeout=30) for answer in prices])
    trace = rec.trace
    for row in trace.requests[["method", "route", "status"]]:
        print(row.method, row.route, row.status)
    for span in trace.where(task_id=prices[2].id).spans:
        print(span.name)
