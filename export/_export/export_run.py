"""Arguments of the stages of an export: folder, options, progress and worker."""

from dataclasses import dataclass
from pathlib import Path

from .._options import Options
from .._progress import ProgressCallback
from .._tracing.saved_model_worker import SavedModelRun


@dataclass(frozen=True)
class ExportRun:
    """Arguments of the stages of an export."""

    folder: Path  # empty; becomes the bundle
    options: Options
    on_step: ProgressCallback  # receives the name of each step
    worker: SavedModelRun  # a process that waits for a SavedModel

    def temporary_path(self, name: str) -> Path:
        """Return the path of a temporary file or folder, in the parent of the bundle's folder."""
        return self.folder.with_name(name)
