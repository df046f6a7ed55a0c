// Pages work without scripts. The scripts add live updates and shortcuts.
import "./times.js";
import "./theme.js";
import "./copy.js";
import "./forms.js";
import "./confirm.js";
import "./choose.js";
import "./timeline.js";
import "./keys.js";
import "./live.js";
