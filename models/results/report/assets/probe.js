/* A page that follows a training loads itself, unseen, in a frame, which hands its data over and shows nothing. */
if (window.parent !== window && window.name === "probe") {
  window.parent.postMessage({ report: document.getElementById("data").textContent }, "*");
  window.stop(); /* what follows is not run */
}
