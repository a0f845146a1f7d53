"""Arguments of the stages of an export: folder, options, progress and worker."""

from dataclasses import dataclass
from pathlib import Path

from .._options import Options
from .._progress import Progress
from .._tracing.saved_model_worker import SavedModelRun


@dataclass(frozen=True)
class ExportRun:
    """Arguments of the stages of an export.

    Attributes:
        folder: The empty folder that becomes the bundle. Its parent holds temporary files.
        options: The options of the export.
        on_step: Progress callback that receives the name of each step.
        worker: A process that waits for a SavedModel.
    """

    folder: Path
    options: Options
    on_step: Progress
    worker: SavedModelRun

    def temporary_path(self, name: str) -> Path:
        """Return the path of a temporary file or folder, in the parent of the bundle's folder."""
        return self.folder.with_name(name)
