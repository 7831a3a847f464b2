// Signs in: with the token in the link's fragment, which no server or log sees, or the one typed.

const said = document.getElementById("said");

// The page that sent us here, if it is one of ours.
function wanted() {
  const next = new URLSearchParams(location.search).get("next") ?? "/";
  const found = new URL(next, location.origin);
  return found.origin === location.origin && next.startsWith("/") && found.pathname !== "/login" ? found.pathname + found.search : "/";
}

async function signIn(token) {
  const response = await fetch("/login", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ token }),
  });
  if (response.ok) location.replace(wanted());
  else said.textContent = response.status === 401 ? "That token is not valid." : `The server said ${response.status}.`;
}

// Coming from a link on another site, the session is not shown with the first request, but with this one.
async function signedInAlready() {
  const response = await fetch("/session");
  if (response.status === 204) location.replace(wanted());
}

document.getElementById("form").addEventListener("submit", (event) => {
  event.preventDefault();
  signIn(document.getElementById("token").value.trim());
});

function begin() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!given) return signedInAlready();
  history.replaceState(null, "", location.pathname + location.search);
  return signIn(given);
}

window.addEventListener("hashchange", begin); // the link opened where this page is shown already
begin();
