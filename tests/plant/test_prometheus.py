from tests.support.text_page import a_text_page

from .prometheus import of_debian, start_prometheus

RULES = {"groups": [{"name": "rules", "rules": [{"alert": "Hot", "expr": "sum by (room) (temperature) > 20"}]}]}


def test_an_alert_fires_in_alertmanager_and_is_resolved() -> None:
    with start_prometheus(of_debian(), RULES) as monitoring, a_text_page() as (address, says):
        says('temperature{room="attic"} 30\n')
        monitoring.scrape("operator", {address: {"room": "cellar", "pod": "a"}})
        (alert,) = monitoring.wait("the alert", lambda: monitoring.firing("Hot"))
        assert alert["room"] == "attic", "the page's own labels win"
        says('temperature{room="attic"} 20\n')
        monitoring.wait("its end", lambda: not monitoring.alerts())
        ((labels, value),) = monitoring.query("temperature")
        assert (labels["pod"], value) == ("a", 20)
