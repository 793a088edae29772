// Mozilla
user_pref("a.b", "x dark y");
user_pref("n", 3);
user_pref("t", true);
user_pref("sig", "Anonym\nXYZ Lab");
