// The links of a notebook to the chapters open the built book, which `attncourse_lab` serves, in a new tab.
// Written in the form in which JupyterLab and Notebook load an extension: webpack's container of modules.
(() => {
  const settings = JSON.parse(document.getElementById("jupyter-config-data").textContent).attncourse;

  // The link on which something happens, if it leads to a page of the book; of the text of a chapter, to its page.
  function lead(event) {
    const link = event.target.closest?.(".jp-Notebook a[href]");
    const [, name] = link?.pathname.match(/\/book\/(\w+)\.(?:md|html)$/) ?? [];
    if (!settings?.pages.includes(name)) return;
    link.href = `${settings.book}book/${name}.html${link.hash}`;
    link.target = "_blank";
    link.rel = "noopener";
    // JupyterLab, which waits for the click further in, would open the file as a document.
    if (event.type === "click") event.stopPropagation();
  }

  const plugin = {
    id: "attncourse:book",
    autoStart: true,
    activate: () => ["mousedown", "click"].forEach(type => document.addEventListener(type, lead, true)),
  };
  (window._JUPYTERLAB ??= {}).attncourse = {
    init: () => {},
    get: async () => () => ({ __esModule: true, default: plugin }),
  };
})();
