"""Health, version, metrics, models, settings."""

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from fada._version import __version__
from fada.serve import models
from fada.serve.api.common import ERRORS, OfDesk
from fada.serve.schema import Health, Model, Settings, Version

router = APIRouter(tags=["system"], responses=ERRORS)
API_VERSION = 1


@router.get("/health")
def health(desk: OfDesk) -> Health:
    """Whether the desk works: its store answers, its queue is alive."""
    desk.store.rows("SELECT 1")
    return Health(status="ok", workers=len(desk.jobs.workers), queued=desk.jobs.queued)


@router.get("/version")
def version() -> Version:
    """Of the package and of this interface."""
    return Version(fada=__version__, api=API_VERSION)


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(desk: OfDesk, request: Request) -> str:
    """What Prometheus reads."""
    rows = [request.app.state.guard.measured.text().rstrip()]
    counts = {"waiting": desk.jobs.queued, "streams": desk.events.count}
    for name, value in counts.items():
        rows += [f"# TYPE fada_{name} gauge", f"fada_{name} {value}"]
    rows.append("# TYPE fada_jobs_total counter")
    rows += [f'fada_jobs_total{{state="{state}"}} {n}' for state, n in sorted(desk.jobs.finished.items())]
    return "\n".join(rows) + "\n"


@router.get("/models")
def list_models(desk: OfDesk) -> list[Model]:
    """The recognisers that can be chosen: those of the package, those that were adapted here."""
    return [Model(**found) for found in models.available(desk)]


@router.get("/settings")
def settings(desk: OfDesk) -> Settings:
    """Of the whole desk."""
    usual = Settings(model=desk.default_model)
    return Settings(**{name: desk.setting(name, getattr(usual, name)) for name in Settings.model_fields})


@router.put("/settings")
def set_settings(desk: OfDesk, given: Settings) -> Settings:
    """Change them; the model is for documents that are new."""
    models.check(desk, given.model)
    desk.set(given.model_dump())
    return given
