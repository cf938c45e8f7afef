"""The check that holds the cameras of a scene against its images."""

from __future__ import annotations

from dataclasses import replace

from data.errors import listed_views
from data.inspection.epipolar import lone_views, median_distance, pair_distances, worst_views
from data.inspection.finding import Finding, graded
from data.scenes.scene import Scene

# Median distance from the epipolar lines in pixels of images reduced to 640. Of four scenes, three of them real,
# right cameras leave 0.2 to 0.3; turned by a degree, in another convention or of the next image, 2 to 100.
GOOD_DISTANCE, FAIR_DISTANCE = 0.75, 1.5
FAIR_CONTRADICTED = 0.1  # share of the views


def cameras(scene: Scene) -> Finding:
    """Whether what neighbouring images both show lies where their cameras say, and each camera has its own."""
    finding = _measured(scene)
    if scene.spare_cameras <= 0:
        return finding
    figure = f"{scene.spare_cameras} more than photographs; {finding.figure}"
    if finding.verdict != "good":
        return replace(finding, figure=figure)
    consequence = "right only where the last photographs are the missing ones: give every camera its photograph"
    return Finding("cameras", figure, "fair", consequence)


def _measured(scene: Scene) -> Finding:
    pairs, tried = pair_distances(scene)
    median = median_distance(pairs, tried)
    if median is None:
        figure = f"{len(pairs)} of {len(tried)} pairs of neighbouring views show enough in common"
        consequence = (
            "nothing in the photographs bears out the cameras: they have no texture, or are not those of the cameras"
        )
        return Finding("cameras", figure, "fair", consequence)
    wrong = worst_views(pairs, FAIR_DISTANCE)
    figure = f"matched features lie {median:.2f} pixels off their epipolar lines (median of {len(pairs)} pairs)"
    verdict = graded(median, GOOD_DISTANCE, FAIR_DISTANCE)
    share = len(wrong) / len({view for pair in pairs for view in (pair.first, pair.second)})
    verdict = max(verdict, graded(share, 0.0, FAIR_CONTRADICTED), key=("good", "fair", "bad").index)
    lone = lone_views(pairs, tried)
    if len(lone):
        figure = f"{figure}; nothing in common with their neighbours: {listed_views(lone, scene.image_names)}"
    if verdict == "good" and len(lone):
        consequence = (
            "nothing bears out the cameras of these views, whose neighbours agree: are their photographs "
            "mirrored, blurred or of something else? mend them or leave them out"
        )
        return Finding("cameras", figure, "fair", consequence)
    if verdict == "good":
        return Finding("cameras", figure, verdict, "the photographs bear out the cameras")
    if len(wrong):
        figure = f"{figure}; contradicted: {listed_views(wrong, scene.image_names)}"
    if verdict == "bad":
        consequence = (
            "these are not the cameras of these photographs, and no shape explains both: look for a photograph removed "
            "or added, another order of names, or poses of another convention; dataset.refine_cameras=poses mends some"
        )
        return Finding("cameras", figure, verdict, consequence)
    consequence = (
        "views with a wrong camera blur the shape for all: correct their poses (dataset.refine_cameras=poses) or leave "
        "them out"
        if len(wrong)
        else "the cameras are a pixel off, which blurs fine detail: refine them (dataset.refine_cameras=poses)"
    )
    return Finding("cameras", figure, verdict, consequence)
