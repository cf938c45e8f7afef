"""The check of a scene's cameras against its images."""

from __future__ import annotations

from dataclasses import replace

from data.errors import listed_views
from data.prepare.inspection.epipolar import lone_views, median_distance, pair_distances, worst_views
from data.prepare.inspection.finding import Finding, graded
from data.scenes.scene import Scene

# Median distance from the epipolar lines, pixels of images reduced to 640. On four scenes, three of them real, correct
# cameras give 0.2 to 0.3; cameras rotated by a degree, in another convention or of the next image give 2 to 100.
GOOD_DISTANCE, FAIR_DISTANCE = 0.75, 1.5
FAIR_CONTRADICTED = 0.1  # share of the views


def cameras(scene: Scene) -> Finding:
    """Whether matches of neighbouring images agree with the cameras, and each camera has an image."""
    finding = _measured(scene)
    if scene.spare_cameras <= 0:
        return finding
    figure = f"{scene.spare_cameras} more than photographs; {finding.figure}"
    if finding.verdict != "good":
        return replace(finding, figure=figure)
    consequence = "correct only if the last photographs are the missing ones: provide a photograph for every camera"
    return Finding("cameras", figure, "fair", consequence)


def _measured(scene: Scene) -> Finding:
    pairs, tried = pair_distances(scene)
    median = median_distance(pairs, tried)
    if median is None:
        figure = f"{len(pairs)} of {len(tried)} pairs of neighbouring views have enough matches"
        consequence = (
            "the cameras cannot be verified: the photographs have no texture, or do not belong to these cameras"
        )
        return Finding("cameras", figure, "fair", consequence)
    wrong = worst_views(pairs, FAIR_DISTANCE)
    figure = f"matched features are {median:.2f} pixels off their epipolar lines (median of {len(pairs)} pairs)"
    verdict = graded(median, GOOD_DISTANCE, FAIR_DISTANCE)
    share = len(wrong) / len({view for pair in pairs for view in (pair.first, pair.second)})
    verdict = max(verdict, graded(share, 0.0, FAIR_CONTRADICTED), key=("good", "fair", "bad").index)
    lone = lone_views(pairs, tried)
    if len(lone):
        figure = f"{figure}; no matches with their neighbours: {listed_views(lone, scene.photographs)}"
    if verdict == "good" and len(lone):
        consequence = (
            "the cameras of these views cannot be verified, although their neighbours agree: check whether the "
            "photographs are mirrored, blurred or of another object; replace them or leave them out"
        )
        return Finding("cameras", figure, "fair", consequence)
    if verdict == "good":
        return Finding("cameras", figure, verdict, "the cameras agree with the photographs")
    if len(wrong):
        figure = f"{figure}; contradicted: {listed_views(wrong, scene.photographs)}"
    if verdict == "bad":
        consequence = (
            "these are not the cameras of these photographs: check for a photograph that was removed or added, another "
            "order of names, or another pose convention; dataset.refine_cameras=poses corrects small errors"
        )
        return Finding("cameras", figure, verdict, consequence)
    consequence = (
        "views with wrong cameras blur the reconstruction: correct their poses (dataset.refine_cameras=poses) or leave "
        "them out"
        if len(wrong)
        else "the cameras are off by a pixel, which blurs fine detail: refine them (dataset.refine_cameras=poses)"
    )
    return Finding("cameras", figure, verdict, consequence)
