function calendar(place, campaign) {
  place.replaceChildren(
    rows([
      ["a slot", `${campaign.slot_seconds} s`],
      ["a cycle", `${campaign.cycle} slots`],
      ["begun", time(campaign.begins, campaign.time_zone)],
    ]),
  );
}
