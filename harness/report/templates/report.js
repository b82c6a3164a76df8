// Sorting of tables with the class "sortable". The page is complete without it.
(() => {
  const value = (row, column) => {
    const cell = row.cells[column];
    const key = cell.dataset.sort ?? cell.textContent.trim();
    return key !== "" && !Number.isNaN(Number(key)) ? Number(key) : key.toLowerCase();
  };
  const compare = (a, b) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    if (typeof a === typeof b) return a < b ? -1 : a > b ? 1 : 0;
    return typeof a === "number" ? -1 : 1;
  };
  const sort = (table, column, head) => {
    const direction = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    const sign = direction === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const keyed = [...body.rows].map((row) => [value(row, column), row]);
    const empty = (key) => key === "";
    keyed.sort(([a], [b]) => (empty(a) || empty(b) ? compare(a, b) : sign * compare(a, b)));
    for (const each of head.parentNode.cells) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    body.append(...keyed.map(([, row]) => row));
  };
  addEventListener("beforeprint", () => {
    for (const each of document.querySelectorAll("details")) each.open = true;
  });
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (head.dataset.nosort !== undefined) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(table, column, head));
    });
  }
})();
