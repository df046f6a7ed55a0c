// Pages work without any of this. Scripts keep them fresh and save clicks.
import "./times.js";
import "./theme.js";
import "./copy.js";
import "./forms.js";
import "./confirm.js";
import "./choose.js";
import "./timeline.js";
import "./keys.js";
import "./live.js";
