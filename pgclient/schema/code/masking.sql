-- Masks secrets in text and JSON that was written outside qtop.

-- The same patterns serve payloads and the messages of programs (last_error, response_excerpt). In doubt they mask:
-- masking too much is safe, masking too little is not.
-- fn_mask_names(left) → a case-insensitive regular expression that matches the name of a secret (password, token, …) up
-- to its end. Short words match only as separate words, so that author, tokenizer, discard and shipping do not match:
-- left is the expression for the text that may precede them. It uses no lookaround, which would cost a hundred times as
-- much. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_names(p_left text DEFAULT '(?:^|[^a-z])') RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_tail CONSTANT text := '[a-z0-9_.\[\]%-]*';
BEGIN
  RETURN '(?:secret(?:[b-z0-9_.\[\]%-]' || c_tail || ')?|token(?:(?:i[^sz\s:=]|[a-hj-z0-9_.\[\]%-])' || c_tail || ')?'
    '|(?:passw|pass[^a-z0-9]?(?:phrase|code|key)|pwd|credential|authori[sz]ation|cookie|bearer|jwt|[cx]srf'
    '|signature|mnemonic|seed[^a-z0-9]?phrase|(?:recovery|backup)[^a-z0-9]?(?:code|phrase|key)|mat[^a-z0-9]?khau'
    '|kennwort|contrasena|mot[^a-z0-9]?de[^a-z0-9]?passe|wachtwoord|adgangskode|losenord|salasana|jelszo'
    '|(?:store|key|ssh)pass|security[^a-z0-9]?code'
    '|(?:api|access|private|sign|signing|encrypt|encryption|decrypt|decryption|master|auth|shared|ssh|ssl|tls|rsa|aes'
    '|gpg|pgp|hmac|account|storage|consumer|subscription|functions|webhook)[^a-z0-9]?key'
    '|sess(?:ion)?[^a-z0-9]?(?:id|key|data)|card[^a-z0-9]?n(?:o|r|um)|(?:credit|debit)[^a-z0-9]?card)' || c_tail
    || '|' || p_left
      || '(?:auth|oauth2?|pass|private|session|sig|hmac|ssn|card|cvv2?|cvc2?|cvn|iban|pin|otp|totp|mfa'
        '|sid|pw|psk|senha|haslo|heslo|sifre|(?:deploy|server)[^a-z0-9]?key)s?(?:[0-9_.\[\]%-]' || c_tail || ')?)';
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_names IS
  'A regular expression for names of secrets. Internal.';

-- fn_mask_fold(text) → the text with full-width, accented and look-alike characters replaced by ASCII, and zero-width
-- characters and the sequences of a terminal removed, so that it matches as a person reads it; some words for password
-- in other scripts become password. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_fold(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_marks CONSTANT text := U&'\2010\2011\2012\2013\2014\2015\2212\2028\2029'; -- hyphens, dashes, line ends
  -- password in Russian (as translate leaves it), Chinese, Japanese and Korean
  c_password CONSTANT text := 'пapoл[ьея]|密[码碼]|パスワード|비밀번호';
  -- Arabic, Persian and Devanagari digits; normalize() knows the others
  c_digits CONSTANT text := '٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹०१२३४५६७८९';
BEGIN
  IF getdatabaseencoding() <> 'UTF8' THEN
    RETURN p_text; -- normalize() works in UTF-8 only
  END IF;
  RETURN regexp_replace(translate(regexp_replace(normalize(public.fn_mask_terminal(p_text), NFKD),
    '[\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f'
    '\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]', '', 'g'),
    'łŁаеорсухіѕјкмтвнԁһոʋѵԝɡıοαενρτυικαςσАЕОРСУХІЅЈКМТВНΑΕΟΡΤΥΙΚΜΝΒΗΧ' || c_marks || c_digits,
      'lLaeopcyxisjkmtbhdhnvvwgioaevptuikacsAEOPCYXISJKMTBHAEOPTYIKMNBHX' || '-------  ' || repeat('0123456789', 3)),
    normalize(c_password, NFKD), 'password', 'gi');
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_fold IS
  'A text with look-alike characters as ASCII and without zero-width characters. Internal.';

-- fn_mask_decode(text) → the text with the percent, JSON and HTML escapes of ASCII characters and of the no-break space
-- decoded once. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_decode(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  v_text text := p_text;
  v_hex text;
  v_char text;
  v_code int;
BEGIN
  -- the escape characters themselves are decoded last
  FOR v_hex IN SELECT h FROM (SELECT to_hex(i) AS h FROM generate_series(32, 126) i) x
    WHERE strpos(lower(p_text COLLATE "C"), '%' || h) > 0 ORDER BY h = '25' LOOP
    v_char := chr(('x' || v_hex)::bit(8)::int);
    v_text := replace(replace(v_text, '%' || v_hex, v_char), '%' || upper(v_hex COLLATE "C"), v_char);
  END LOOP;
  IF strpos(v_text, '\u00') > 0 OR strpos(v_text, '\x') > 0 THEN
    FOR v_hex IN SELECT h FROM (SELECT to_hex(i) AS h FROM generate_series(32, 126) i) x ORDER BY h = '5c' LOOP
      v_char := chr(('x' || v_hex)::bit(8)::int);
      v_text := replace(replace(v_text, '\u00' || v_hex, v_char), '\x' || v_hex, v_char);
      v_text := replace(replace(v_text, '\u00' || upper(v_hex COLLATE "C"), v_char),
        '\x' || upper(v_hex COLLATE "C"), v_char);
    END LOOP;
  END IF;
  v_text := regexp_replace(v_text, '%[Cc]2%[Aa]0|\\u00[Aa]0|&nbsp;', ' ', 'g');
  IF v_text ~ '&#' THEN
    -- without leading zeros an entity has few spellings: each takes one replace()
    v_text := regexp_replace(v_text, '&#([Xx]?)0+([0-9A-Fa-f]+;)', '&#\1\2', 'g');
    FOR v_hex, v_code IN SELECT DISTINCT m[1], COALESCE(('x' || m[2])::bit(8)::int, m[3]::int)
      FROM regexp_matches(v_text, '(&#(?:[Xx]([0-9A-Fa-f]{2})|([0-9]{2,3}));)', 'g') m LOOP
      IF v_code BETWEEN 32 AND 126 OR v_code = 160 THEN
        v_text := replace(v_text, v_hex, CASE WHEN v_code = 160 THEN ' ' ELSE chr(v_code) END);
      END IF;
    END LOOP;
  END IF;
  IF v_text ~ '&(?:quot|apos|lt|gt|amp)' THEN
    v_text := regexp_replace(regexp_replace(v_text, '&quot;', '"', 'gi'), '&apos;', '''', 'gi');
    v_text := replace(replace(replace(v_text, '&lt;', '<'), '&gt;', '>'), '&amp;', '&');
  END IF;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_decode IS
  'A text with its percent, JSON and HTML escapes decoded once. Internal.';

-- fn_mask_codes() → a regular expression for text that may be JSON in base64 or hex, encoded once or several times: the
-- encoded first characters of JSON in UTF-8 or UTF-16, also after white space, followed by more characters of that
-- encoding, or a longer piece that decodes to printable text. Base64 may be wrapped, and hex may have marks between its
-- bytes. It is the first group or, after / or +, the second one: these may be within base64 of something else, such as
-- an image, where two characters that look like the first ones of JSON are common, but not three. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_codes() RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_base64 CONSTANT text := '[A-Za-z0-9+/_-]{9,}(?:\r?\n[ \t]*[A-Za-z0-9+/_-]+)*={0,2}';
  -- JSON after a blank, a line end or a tab; a string that holds JSON; a list that begins with null or false
  c_spaced CONSTANT text := 'I(?:Hs|F[st]|C[ABIJ]|A[klop0])|C(?:[nX]s|[lV][st]|[iS][ABIJ]|[gQ][klop])|DQ[op]'
    '|In(?:tc|sg)|Il(?:tc|t7|sg|x[uy0])|W251|W2Zh';
  c_hex CONSTANT text := '(?:(?:[Ee][Ff][Bb]{2}[Bb][Ff]|[Ff][Ee][Ff]{2}|[Ff]{3}[Ee])?(?:00)?(?:0[9AaDd]|20)*'
    '(?:7[Bb](?:2[02]|0[0AaDd9])|5[Bb](?:7[Bb]|2[02]|5[Bb]|0[0AaDd9]|6[Ee]75|6661|7472|3[0-9]2[Cc]))'
    '|22(?:7[Bb]5[Cc]|5[Bb](?:5[Cc]|7[Bb]))|65(?:79|77)|57(?:3[13]|6[Cc]|7[79Aa])|3[57][46]2)(?:[0-9A-Fa-f]{2}){6,}';
  c_mark CONSTANT text := '[\s:,-]{1,2}(?:0[Xx])?'; -- between two bytes
  c_bytes CONSTANT text := '(?:(?:20|0[9AaDd])' || c_mark || ')*[57][Bb]' || c_mark || '(?:2[02]|0[9AaDd]|[57][Bb])(?:'
    || c_mark || '[0-9A-Fa-f]{2}){4,}';
  -- printable text in base64 or hex, such as JSON in one more code
  c_text CONSTANT text := '(?:[K-Za-e][A-Za-z0-9+/_-]{3}){10,}[A-Za-z0-9+/_-]{0,3}={0,2}|(?:[2-7][0-9A-Fa-f]){24,}';
BEGIN
  RETURN '(?:^|[^A-Za-z0-9+/]|[\\0]x)('
      '(?:e[wy]|W[13lwyz]|ZX|V[3jnz]|A[FH]sA|[/_]{2}5[7b]A|[/_]v8A[We]|77u/[We]|' || c_spaced || ')' || c_base64
    || '|N[02UW]I[A-Za-z0-9+/_-]{14,}={0,2}|' || c_hex || '|' || c_bytes || '|' || c_text
    || ')|[+/]((?:ey[AIJ]|ew[0Ako]|W1[st]|W3s|Ww[ABo]|Wy[AIJ]|ZX[cdl]|V3[dl]|Vz[FN]|Cns|IHs)' || c_base64
    || '|' || c_hex || ')';
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_codes IS
  'A regular expression for text that may be JSON in base64 or hex. Internal.';

-- fn_mask_countries() → a regular expression for the countries that use IBANs, in upper or lower case. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_countries() RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN '(?:[Aa][DELOTZdelotz]|[Bb][AEFGHIJRYaefghijry]|[Cc][FGHIMRVYZfghimrvyz]|[Dd][EJKOZejkoz]|[Ee][EGSegs]'
    '|[Ff][IKORikor]|[Gg][ABEILQRTWabeilqrtw]|[Hh][NRUnru]|[Ii][ELQRSTelqrst]|[Jj][Oo]|[Kk][MWZmwz]'
    '|[Ll][BCITUVYbcituvy]|[Mm][ACDEKLNRTUZacdeklnrtuz]|[Nn][EILOeilo]|[Oo][Mm]|[Pp][KLSTklst]|[Qq][Aa]'
    '|[Rr][OSUosu]|[Ss][ACDEIKMNOTVacdeikmnotv]|[Tt][GLNRglnr]|[Uu][Aa]|[Vv][AGag]|[Xx][Kk]|[Yy][Ee])';
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_countries IS
  'A regular expression for the countries that use IBANs. Internal.';

-- fn_mask_digits() → a regular expression that finds whether a text may hold a card number or an IBAN (see
-- fn_mask_accounts). Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_digits() RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN '(?:^|[^0-9.]|(?:^|[^0-9])[.])[2-6](?:[ -]?[0-9]){12}'
    '|(?:^|[^A-Za-z0-9])(?:[Ii][Bb][Aa][Nn])?' || public.fn_mask_countries() || '[0-9]{2}(?:[ -]?[A-Za-z0-9]){11}'
    '|(?:^|[^A-Za-z0-9])(?:[2-6][0-9]{3}(?:[^A-Za-z0-9]{1,4}[0-9]{4}){3}'
    '|3[47][0-9]{2}[^A-Za-z0-9]{1,4}[0-9]{6}[^A-Za-z0-9]{1,4}[0-9]{5}'
    '|' || public.fn_mask_countries() || '[0-9]{2}(?:[^A-Za-z0-9]{1,4}[A-Za-z0-9]{4}){2})';
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_digits IS
  'A regular expression for text that may be a card number or an IBAN. Internal.';

-- fn_mask_card(digits) → whether the digits are a card number, by their length, first digits and Luhn checksum.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_card(p_digits text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_sum int := 0;
  v_digit int;
  v_len int := length(p_digits);
BEGIN
  IF p_digits !~ ('^(?:4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})|5[1-5][0-9]{14}'
    '|2(?:20[0-4]|22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)[0-9]{12}|3[47][0-9]{13}'
    '|3(?:0[0-5]|[689][0-9])[0-9]{11}|3095[0-9]{10}'
    '|35[0-9]{14}|(?:5[0678]|6[0-9])[0-9]{11,17})$') THEN
    RETURN false;
  END IF;
  FOR i IN 1..v_len LOOP
    v_digit := substr(p_digits, v_len + 1 - i, 1)::int;
    IF i % 2 = 0 THEN
      v_digit := v_digit * 2 - CASE WHEN v_digit > 4 THEN 9 ELSE 0 END;
    END IF;
    v_sum := v_sum + v_digit;
  END LOOP;
  RETURN v_sum % 10 = 0;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_card IS 'Whether digits are a card number, by the Luhn checksum. Internal.';

-- fn_mask_iban(text) → whether the text, without its spaces, is an IBAN: a country that uses IBANs, and the mod-97
-- checksum. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_iban(p_text text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_digits text := upper((substr(p_text, 5) || left(p_text, 4)) COLLATE "C");
  v_char text;
BEGIN
  IF p_text !~ ('^' || public.fn_mask_countries() || '[0-9]{2}[A-Za-z0-9]{11,30}$') THEN
    RETURN false;
  END IF;
  LOOP
    v_char := substring(v_digits FROM '[A-Z]');
    EXIT WHEN v_char IS NULL;
    v_digits := replace(v_digits, v_char, (ascii(v_char) - 55)::text);
  END LOOP;
  RETURN v_digits::numeric % 97 = 1;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_iban IS 'Whether a text is an IBAN, by its checksum. Internal.';

-- fn_mask_groups(text, iban) → the text, groups of letters and digits with other characters between them, with each run
-- of groups masked that is a card number, or an IBAN: other numbers and words may be next to it. If more runs than can
-- be tested in about 0.2 s have the length of one, all is masked. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_groups(p_text text, p_iban boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_start CONSTANT text := CASE WHEN p_iban THEN '^[A-Za-z]{2}[0-9]{2}' ELSE '^[2-6]' END;
  c_least CONSTANT int := CASE WHEN p_iban THEN 15 ELSE 13 END;
  c_most CONSTANT int := CASE WHEN p_iban THEN 34 ELSE 19 END;
  c_tests CONSTANT int := CASE WHEN p_iban THEN 4000 ELSE 20000 END;
  v_groups text[] := regexp_split_to_array(p_text, '[^A-Za-z0-9]+');
  v_marks text[] := regexp_split_to_array(p_text, '[A-Za-z0-9]+'); -- the marks before each group
  v_show text[] := v_groups;
  v_run text;
  v_last int;
  v_tests int := 0;
  v_masked int := 0; -- up to which group all is masked
BEGIN
  FOR i IN 1..cardinality(v_groups) LOOP
    v_last := 0;
    IF v_groups[i] ~ c_start THEN
      v_run := '';
      FOR j IN i..cardinality(v_groups) LOOP
        v_run := v_run || v_groups[j];
        EXIT WHEN length(v_run) > c_most;
        CONTINUE WHEN length(v_run) < c_least;
        v_tests := v_tests + 1;
        IF v_tests > c_tests THEN
          RETURN '•••';
        END IF;
        IF (CASE WHEN p_iban THEN public.fn_mask_iban(v_run) ELSE public.fn_mask_card(v_run) END) THEN
          v_last := j;
        END IF;
      END LOOP;
    END IF;
    v_show[i] := CASE WHEN i <= v_masked THEN '' ELSE v_marks[i] || CASE WHEN v_last > 0 THEN '•••' ELSE v_groups[i] END
      END;
    v_masked := greatest(v_masked, v_last);
  END LOOP;
  RETURN array_to_string(v_show, '');
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_groups IS
  'Groups of digits or letters with each card number or IBAN among them masked. Internal.';

-- fn_mask_split(text) → the text with card numbers and IBANs masked that are the strings of a list, group by group:
-- "4111", "1111", "1111", "1111". Groups have the usual lengths, and a longer list of numbers is none. Of JSON the
-- result is JSON, with fewer elements. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_split(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_next CONSTANT text := '\\*["''],\s?\\*["'']'; -- between two elements
  c_iban CONSTANT text := '["'']([A-Za-z]{2}[0-9]{2}(?:' || c_next || '[A-Za-z0-9]{4}){2,}(?:' || c_next
    || '[A-Za-z0-9]{1,3})?)(?=\\*["''])';
  c_card CONSTANT text := '["''](3[47][0-9]{2}' || c_next || '[0-9]{6}' || c_next || '[0-9]{5}|[2-6][0-9]{3}(?:'
    || c_next || '[0-9]{4}){3,}(?:' || c_next || '[0-9]{1,3})?)(?=\\*["''])';
  v_text text := p_text;
  v_pattern text;
  v_part text;
  v_masked text;
BEGIN
  FOREACH v_pattern IN ARRAY ARRAY[c_iban, c_card] LOOP
    FOR v_part IN SELECT f.part FROM (SELECT DISTINCT m[1] AS part FROM regexp_matches(v_text, v_pattern, 'g') m) f
      -- in a long list of numbers of four digits, some are a card number by chance
      WHERE v_pattern = c_iban OR length(f.part) <= 80 ORDER BY length(f.part) DESC
    LOOP
      v_masked := public.fn_mask_groups(v_part, v_pattern = c_iban);
      IF v_masked <> v_part THEN
        v_text := replace(v_text, v_part, v_masked);
      END IF;
    END LOOP;
  END LOOP;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_split IS
  'A text with card numbers and IBANs masked that are split over the strings of a list. Internal.';

-- fn_mask_split_list(list) → the list with card numbers and IBANs masked that are split over its strings, which then
-- are fewer. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_split_list(p_list jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_strings text := (SELECT jsonb_agg(CASE WHEN jsonb_typeof(e.value) = 'string' THEN e.value END ORDER BY e.n)
    FROM jsonb_array_elements(p_list) WITH ORDINALITY e (value, n));
  v_masked text := public.fn_mask_split(v_strings);
BEGIN
  IF v_masked IS NOT DISTINCT FROM v_strings THEN
    RETURN p_list;
  END IF;
  RETURN (SELECT jsonb_agg(COALESCE(o.value, s.value) ORDER BY s.n)
    FROM (SELECT e.value, e.n, CASE WHEN e.value = 'null' THEN count(*) FILTER (WHERE e.value = 'null')
        OVER (ORDER BY e.n) END AS other
      FROM jsonb_array_elements(v_masked::jsonb) WITH ORDINALITY e (value, n)) s
    LEFT JOIN (SELECT e.value, row_number() OVER (ORDER BY e.n) AS other
      FROM jsonb_array_elements(p_list) WITH ORDINALITY e (value, n)
      WHERE jsonb_typeof(e.value) <> 'string') o USING (other));
EXCEPTION WHEN data_exception THEN -- a part that was also found elsewhere, within an escape: no JSON
  RETURN '["•••"]'::jsonb;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_split_list IS
  'A list with card numbers and IBANs masked that are split over its strings. Internal.';

-- fn_mask_accounts(text) → the text with card numbers and IBANs masked. A number with a wrong checksum is not masked.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_accounts(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  -- Up to the last digit, or the last word, and no further: what follows can begin the next match.
  c_card CONSTANT text := '(?:^|[^0-9.]|(?:^|[^0-9])[.])([2-6](?:[ -]?[0-9]){12,})';
  c_iban CONSTANT text := '(?:^|[^A-Za-z0-9])(?:[Ii][Bb][Aa][Nn])?([A-Za-z]{2}[0-9]{2}[A-Za-z0-9]*'
    '(?:[ -][A-Za-z0-9]+)*)';
  -- with other marks between the groups only in groups of the usual lengths: 4.1 is a number, 2026/11 a date; a comma
  -- or a semicolon is between the values of a list. One pattern for each kind, with no limit to the groups, because a
  -- number or word before an account may look like its first group: 2026: 4111.1111.1111.1111
  c_mark CONSTANT text := '[^A-Za-z0-9,;]{1,3}';
  c_marked_iban CONSTANT text := '(?:^|[^A-Za-z0-9])([A-Za-z]{2}[0-9]{2}(?:' || c_mark || '[A-Za-z0-9]{4}){2,}(?:'
    || c_mark || '[A-Za-z0-9]{1,3})?)(?![A-Za-z0-9])';
  c_marked_card CONSTANT text := '(?:^|[^A-Za-z0-9])([2-6][0-9]{3}(?:' || c_mark || '[0-9]{4}){3,}(?:(?:' || c_mark
    || ')?[0-9]{1,3})?)(?![A-Za-z0-9])';
  c_marked_amex CONSTANT text := '(?:^|[^A-Za-z0-9])(3[47][0-9]{2}' || c_mark || '[0-9]{6}' || c_mark
    || '[0-9]{5})(?![A-Za-z0-9])';
  v_text text := public.fn_mask_split(p_text);
  v_pattern text;
  v_iban boolean;
  v_part text;
  v_masked text;
BEGIN
  FOREACH v_pattern IN ARRAY ARRAY[c_marked_iban, c_marked_card, c_marked_amex, c_iban, c_card] LOOP
    v_iban := v_pattern IN (c_marked_iban, c_iban);
    -- the longest first: a shorter part may lie within a longer one
    FOR v_part IN SELECT f.part FROM (SELECT DISTINCT m[1] AS part FROM regexp_matches(v_text, v_pattern, 'g') m) f
      WHERE v_pattern IN (c_iban, c_card) OR f.part ~ '[^A-Za-z0-9 -]|[ -]{2}' ORDER BY length(f.part) DESC
    LOOP
      v_masked := public.fn_mask_groups(v_part, v_iban);
      IF v_masked <> v_part THEN
        -- also the code after a card: 4111/1111/1111/1111/123
        v_text := replace(v_text, v_part, regexp_replace(v_masked, '•••[._/][0-9]{1,3}$', '•••'));
      END IF;
    END LOOP;
  END LOOP;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_accounts IS 'A text with its card numbers and IBANs masked. Internal.';

-- fn_mask_maybe(text) → false if nothing in the text, JSON or not, can be a secret; true if something may be a secret.
-- This cheap test spares most payloads the full masking. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_maybe(p_text text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_shapes CONSTANT text := 'A[KS]IA|k_(?:live|test)_|gh[a-z]_|gl[a-z]+-|SG\.|shp[a-z]+_|do[opr]_v1|hv[brs]\.'
    '|[0-9]{8}:AA|[Bb][Aa][Ss][Ii][Cc] |[Dd][Ii][Gg][Ee][Ss][Tt] |(?:PRIVATE|private)[\s_+]+[Kk]'
    '|//[^\s"]*@|@(?:tcp|unix)\(|(?:DENTIFIED|dentified) '
    '|(?:^|[^A-Za-z0-9])[Pp][Ww]s?(?:$|[^A-Za-z])|[a-z]Pws?(?:$|[^A-Za-z])'
    '|(?:deploy|Deploy|server|Server)[^a-z0-9]?[Kk]ey|(?:DEPLOY|SERVER)[^A-Z0-9]?KEY'
    '|(?:^|[^a-z])(?:auth|oauth2?|pass|private|session|sig|hmac|ssn|card|cvv2?|cvc2?|cvn|iban|pin|otp|totp|mfa'
    '|sid|psk|senha|haslo|heslo|sifre)s?(?:$|[^a-z])'
    '|(?:Auth|Oauth2?|OAuth2?|Pass|Private|Session|Sig|Hmac|Ssn|Card|Cvv2?|Cvc2?|Cvn|Iban|Pin|Otp|Totp|Mfa|Sid|Psk'
    '|Senha|Haslo|Heslo|Sifre)s?(?:$|[^a-z])'
    '|AUTH|PASS|PRIVATE|SESSION|SIG|HMAC|SSN|CARD|CV[CNV]|IBAN|PIN|OTP|MFA|SID|PSK|SENHA|HASLO|HESLO|SIFRE';
  v_text text := p_text;
  v_next text;
BEGIN
  IF v_text ~ public.fn_mask_codes() THEN -- tested first, before \x is decoded as an escape
    RETURN true;
  END IF;
  -- a line end and its like are spaces between words, and nothing within a word
  IF v_text ~ '[^ -~]' THEN
    v_text := public.fn_mask_fold(v_text);
    IF v_text ~ '[\u0001-\u001f\u007f-\u009f\ufffd]' THEN
      v_text := regexp_replace(v_text, '[\u0001-\u001f\u007f-\u009f\ufffd]', '', 'g')
        || regexp_replace(v_text, '[\u0001-\u001f\u007f-\u009f\ufffd]', ' ', 'g');
    END IF;
  END IF;
  IF v_text ~ '[%\\&]' THEN
    v_text := public.fn_mask_terminal(v_text);
    FOR v_round IN 1..4 LOOP
      v_next := public.fn_mask_decode(v_text);
      WHILE strpos(v_next, '\\') > 0 LOOP
        v_next := replace(v_next, '\\', '\');
      END LOOP;
      EXIT WHEN v_next = v_text;
      v_text := v_next;
    END LOOP;
    IF v_text ~* '\\u[0-9a-f]{4}' THEN -- a JSON escape of a character beyond ASCII, which fn_mask_fold did not see
      RETURN true;
    END IF;
    IF strpos(v_text, '\') > 0 THEN
      v_text := replace(v_text, '\', '') || regexp_replace(v_text, '\\+[bfnrt]', ' ', 'g');
    END IF;
  END IF;
  -- what is the same in each case costs less this way than in the pattern
  IF strpos(v_text, 'eyJ') > 0 OR strpos(v_text, 'whsec') > 0 OR strpos(v_text, 'github_pat') > 0
    OR strpos(v_text, 'xox') > 0 OR strpos(v_text, 'xapp') > 0 OR strpos(v_text, 'AIza') > 0
    OR strpos(v_text, 'sk-') > 0 OR strpos(v_text, 'npm_') > 0 OR strpos(v_text, 'ya29') > 0
    OR strpos(v_text, 'AGE-SEC') > 0 OR strpos(v_text, 'hf_') > 0 OR strpos(v_text, 'glsa_') > 0
    OR strpos(v_text, 'dckr_pat') > 0 OR strpos(v_text, 'pypi-A') > 0 OR strpos(v_text, 'ATATT3') > 0
    OR strpos(v_text, 'PMAK-') > 0 OR strpos(v_text, 'figd_') > 0 OR strpos(v_text, 'tskey-') > 0
    OR strpos(v_text, '.local.') > 0 OR strpos(v_text, '.public.') > 0 OR strpos(v_text, 'hooks.slack') > 0
    OR strpos(v_text, 'discord') > 0 OR strpos(v_text, 'telegram.org') > 0 OR strpos(v_text, 'office.com') > 0
    OR strpos(v_text, 'jdbc:oracle') > 0 OR strpos(v_text, '"kty"') > 0 OR strpos(v_text, '--user') > 0
    OR strpos(v_text, '--proxy-user') > 0 OR strpos(v_text, 'curl') > 0 THEN
    RETURN true;
  END IF;
  RETURN v_text ~ c_shapes OR v_text ~ public.fn_mask_digits() OR v_text <> p_text AND v_text ~ public.fn_mask_codes()
    OR v_text ~* public.fn_mask_names('[0-9]');
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_maybe IS 'Whether a text may hold a secret. Internal.';

-- fn_mask_named(name) → whether this is the name of a secret, in any case, escaped or with look-alike characters.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_named(p_name text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  v_name text := p_name;
BEGIN
  IF v_name ~ '[^ -~]' THEN
    v_name := regexp_replace(public.fn_mask_fold(v_name), '[\u0001-\u001f\u007f-\u009f\ufffd]', '', 'g');
  END IF;
  IF v_name ~ '[%\\&]' THEN
    v_name := public.fn_mask_decode(v_name);
  END IF;
  v_name := regexp_replace(regexp_replace(v_name, '([a-z0-9])([A-Z])', '\1_\2', 'g'), '[^A-Za-z0-9]+', '_', 'g') || '=';
  -- also with PINCode as PIN_Code
  RETURN v_name || regexp_replace(v_name, '([A-Z])([A-Z][a-z])', '\1_\2', 'g')
    ~* (public.fn_mask_names('(?:^|[^a-z])'::text) || '=');
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_named IS 'Whether a name is that of a secret. Internal.';

-- fn_mask_words(text) → the text with everything masked that looks like a secret: keys in the formats of known vendors,
-- authorisation schemes, secrets in URLs, and the value after the name of a secret in forms, headers, XML, command
-- lines and truncated JSON. A text that is masked already does not change. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_words(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_shape CONSTANT text := '(^|[^A-Za-z0-9])(?:eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+|A[KS]IA[A-Z0-9]{12,}'
    '|[sr]k_(?:live|test)_[A-Za-z0-9]{6,}'
    '|whsec_[A-Za-z0-9+/=_-]{6,}|gh[a-z]_[A-Za-z0-9]{10,}|github_pat_[A-Za-z0-9_]{10,}|gl[a-z]{2,4}-[A-Za-z0-9_-]{16,}'
    '|xox[a-z]-[A-Za-z0-9-]{6,}|xapp-[A-Za-z0-9-]{6,}|(?:sk|tskey-(?:api|auth|client|scim|webhook))-[A-Za-z0-9_-]{16,}'
    '|SG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}'
    '|(?:npm|hf)_[A-Za-z0-9]{20,}|ya29\.[A-Za-z0-9_-]{10,}|shp[a-z]{2}_[A-Za-z0-9]{10,}|AGE-SECRET-KEY-1[A-Z0-9]{10,}'
    '|(?:AIza|ATATT3|dckr_pat_|do[opr]_v1_|figd_|glsa_|hv[brs]\.|PMAK-|pypi-AgE|v[1-4]\.(?:local|public)\.'
    '|(?:bot)?[0-9]{8,}:AA)[A-Za-z0-9_=-]{20,})';
  -- a value is a quoted string up to its closing quote, also with escaped quotes; a list or an object up to its end;
  -- or anything up to the next separator
  c_value CONSTANT text := '(?:"(?:[^"\\]|\\.)*(?:"|$)|\\+"(?:[^"]|"+\s*[^\s,}\])&;"\\])*(?:"|$)|''(?:[^''\\]'
    '|\\.)*(?:''|$)'
    '|\[[^\]]*(?:\]|$)|\{[^}]*(?:\}|$)|[^&;,\s"''](?:[^&;,\s"'']|,[^&;,\s"''])*)';
  c_is CONSTANT text := '\\*["'']?\]?\s*[:=]{1,2}>?\s*'; -- between a name and its value
  -- the short names within a name: dbPass, userPINCode
  c_more CONSTANT text := '(?:[A-Z0-9_.\[\]%-][A-Za-z0-9_.\[\]%-]*)?';
  c_camel CONSTANT text := '(?:[A-Za-z0-9](?:Pass|Sig|Hmac|Ssn|Card|Cvv2?|Cvc2?|Cvn|Iban|Pin|Otp|Totp|Mfa|Pw|Psk|Senha'
    '|Haslo|Heslo|Sifre)s?|(?:^|[^A-Z])(?:AUTH|PASS|SSN|CVV2?|CVC2?|CVN|IBAN|PIN|OTP|MFA|PSK)s?(?![A-Z]+[^a-z]))'
    || c_more || c_is;
  -- in names of classes and functions too, as in createSession: timeout. After a colon and a space, only what is in
  -- quotes, or has at least 8 characters with letters and digits.
  c_class CONSTANT text := '[A-Za-z0-9](?:Auth|OAuth2?|Session)s?' || c_more || '(?:\\*["'']\]?\s*[:=]{1,2}>?\s*'
    '|\]?\s*(?::?={1,2}>?\s*|:(?=[^\s:])|:\s+(?=\\*["'']'
    '|[^\s&;,"'']{8})(?=\\*["'']|[^\s&;,"'']*[0-9])(?=\\*["'']|[^\s&;,"'']*[A-Za-z])))';
  -- A word after password without a sign between is masked only if no text about passwords has such a word: it has a
  -- digit that is not at its beginning or end, or a digit and a mark within, and is no name of an algorithm or product.
  c_bare CONSTANT text := '\m(?:password|passwd|passphrase|pwd)\s+(?:(?:[Ii]s|was)\s+)?';
  c_bare_value CONSTANT text := '(?!(?:base64|utf8|utf16|md[245]|sha[0-9]|argon2|pbkdf2|blake[23]|oauth2?|x509|ed25519'
    || '|w[Ii]n32|w[Ii]n64|http2|[Ii]pv[46]|saml2|oracle[0-9]|db2|pkcs[0-9]|p12|log4j|web3|neo4j|auth0|rfc[0-9]'
    || '|mysql[0-9]))'
    || '(?:(?=[A-Za-z]+[0-9][A-Za-z0-9]*[A-Za-z])|(?=[A-Za-z0-9!@#$^*~]*[A-Za-z])(?=[A-Za-z0-9!@#$^*~]*[0-9])'
    || '(?=[A-Za-z0-9!@#$^*~]*[!@#$^*~][A-Za-z0-9]))[A-Za-z0-9!@#$^*~]{6,}(?![^\s.,;:)"''])(?![.:][^\s])';
  v_text text := p_text;
BEGIN
  v_text := regexp_replace(v_text, c_shape, '\1•••', 'g');
  IF v_text ~* 'private[\s_+]+key' THEN -- in a form, spaces are written as +
    v_text := regexp_replace(v_text,
      '-{2,}?[\s+]*BEGIN[A-Z0-9\s_+]{0,40}PRIVATE[\s_+]+KEY.*(?:--[\s+]*END[A-Z0-9\s_+]*-{2,}(?!-)|$)', '•••', 'gi');
    -- the end of one
    v_text := regexp_replace(v_text, '(?:[A-Za-z0-9+/]{20,}={0,2}(?:\s|\\+[nr])+)*[A-Za-z0-9+/]+={0,2}(?:\s|\\+[nr])*'
      '-{2,}\s*END[A-Z0-9 ]{0,40}PRIVATE\s+KEY(?:\s*-{2,})?', '•••', 'g');
  END IF;
  IF v_text ~ '/[^\s]*@|@(?:tcp|unix)\(' THEN
    -- user:password@, where the password may itself hold / and @; a port is not a password. Some write https:\/\/, and
    -- some addresses have no scheme.
    v_text := regexp_replace(v_text, '((?:^|[:\s"''=(])\\*/\\*/[^/@:\s]*:)'
      '(?:[^@\s"<>0-9][^@\s"<>]*|\d+[^@\s"<>0-9/?#][^@\s"<>]*|\d*)@(?:[^@\s"<>]*@)*', '\1•••@', 'g');
    v_text := regexp_replace(v_text, '((?:^|[:\s"''=(])\\*/\\*/)[^/@:\s"<>]+@', '\1•••@', 'g');
    -- addresses of databases: user:password@tcp(host:port) and jdbc:oracle:thin:user/password@host
    v_text := regexp_replace(v_text, '([^\s/@:"''<>]:)[^\s"''<>]+(@(?:tcp|unix)\()', '\1•••\2', 'g');
    v_text := regexp_replace(v_text, '(jdbc:oracle:[a-z0-9]+:[^\s/@"''<>]*/)[^\s"''<>]+@', '\1•••@', 'g');
  END IF;
  IF v_text ~* (c_bare || c_bare_value) THEN -- password hunter2x, but not the name in password token2fa: …
    v_text := regexp_replace(v_text, '(' || c_bare || ')(?![a-z0-9]*' || public.fn_mask_names('') || '[^\s:=]*\s*[:=])'
      || c_bare_value, '\1•••', 'gi');
  END IF;
  v_text := regexp_replace(v_text,
    '(\m(?:password|passwd|passphrase|pwd|identified\s+by)\s+)(?:"(?:[^"\\]|\\.)*(?:"|$)|''(?:[^''\\]|\\.)*(?:''|$))',
    '\1•••', 'gi');
  v_text := public.fn_mask_commands(v_text);
  IF v_text ~* 'basic|digest' THEN
    v_text := regexp_replace(v_text,
      '(\m(?:[Bb][Aa][Ss][Ii][Cc]|[Dd][Ii][Gg][Ee][Ss][Tt])\s+)[A-Za-z0-9+/_-]+[A-Z0-9=+/][A-Za-z0-9+/=_-]{4,}',
      '\1•••', 'g');
  END IF;
  IF strpos(v_text, '.com') > 0 OR strpos(v_text, 'telegram.org') > 0 THEN -- webhooks of chats
    v_text := regexp_replace(v_text, '(hooks\.slack(?:-gov)?\.com\\*/(?:services|workflows|triggers)\\*/'
      '|discord(?:app)?\.com\\*/api\\*/(?:v[0-9]+\\*/)?webhooks\\*/|api\.telegram\.org\\*/(?:file\\*/)?bot'
      '|\.office\.com\\*/webhook(?:b2)?\\*/)(?:[a-z0-9_@%:-]|\\*/)+', '\1•••', 'gi');
  END IF;
  IF strpos(v_text, '"kty') > 0 THEN -- a key in truncated JSON
    v_text := regexp_replace(v_text, '("(?:d|p|q|dp|dq|qi|k)\\*"\s*:\s*)(?:"[^"]*(?:"|$)|\\+"[^"]*(?:"|$))',
      '\1•••', 'g');
  END IF;
  IF v_text ~ c_camel THEN -- before the names as they are: (?:^|[^a-z])pass does not match dbPass
    v_text := regexp_replace(v_text, '(' || c_camel || ')' || c_value, '\1•••', 'g');
  END IF;
  IF v_text ~ c_class THEN
    v_text := regexp_replace(v_text, '(' || c_class || ')' || c_value, '\1•••', 'g');
  END IF;
  IF v_text !~* public.fn_mask_names('(?:^|[^a-z])'::text) THEN
    RETURN v_text;
  END IF;
  v_text := regexp_replace(v_text, '(\m(?:bearer|apikey)\s+)[A-Za-z0-9._~+/=-]{6,}', '\1•••', 'gi');
  v_text := regexp_replace(v_text, '((?:authori[sz]ation|cookie)["'']?\s*:\s*)[^"''\\\s][^\r\n]*', '\1•••', 'gi');
  v_text := regexp_replace(v_text, '((?:passphrase|mnemonic|seed phrase)\s*[:=]\s*)[^"''\\\s][^\r\n&;,]*', '\1•••',
    'gi');
  IF strpos(v_text, '<') > 0 THEN
    v_text := public.fn_mask_markup(v_text);
  END IF;
  IF strpos(v_text, '--') > 0 THEN -- --password …
    v_text := regexp_replace(v_text, '(--[a-z0-9-]*' || public.fn_mask_names('')
      || '\s+)(?:"[^"]*(?:"|$)|\\+"[^"]*(?:"|$)|''[^'']*(?:''|$)|[^\s"''-][^\s"'']*)', '\1•••', 'gi');
  END IF;
  v_text := public.fn_mask_values(v_text);
  IF strpos(v_text, 'name') > 0 THEN -- a part of a multipart form; "name": "password", "value": … in truncated JSON
    v_text := regexp_replace(v_text, '(name=\\*"[^"]*' || public.fn_mask_names('')
      || '"\s*\n\s*)[^\s][^\r\n]*', '\1•••', 'gi');
    v_text := regexp_replace(v_text, '(form-data;\s*name=[^;=]*' || public.fn_mask_names('[^a-z;=]')
      || '\\*"\s+)\S+(?:[^\r\n-]|-(?!-))*', '\1•••', 'gi'); -- with blanks in place of line ends
    v_text := regexp_replace(v_text, '("(?:name|key|field|header|param)\\*"\s*:\s*\\*"[^"]*' || public.fn_mask_names('')
      || '\\*"\s*,\s*\\*"[a-z_]*val[a-z_]*\\*"\s*:\s*)' || c_value, '\1•••', 'gi');
  END IF;
  -- name=…, name: …, name => …
  v_text := regexp_replace(v_text, '(' || public.fn_mask_names('(?:^|[^a-z])'::text) || c_is || ')' || c_value,
    '\1•••', 'gi');
  IF v_text ~* (c_bare || c_bare_value) THEN -- what was left as a name above
    v_text := regexp_replace(v_text, '(' || c_bare || ')' || c_bare_value, '\1•••', 'gi');
  END IF;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_words IS
  'A text with everything masked that looks like a secret. Internal.';

-- fn_mask_coded(text, depth) → the text with each base64 or hex piece masked that decodes to JSON, even truncated JSON,
-- with a secret. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_coded(p_text text, p_depth int) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  -- lines of base64 with blanks between them, as line ends become in the answer of a receiver
  v_given CONSTANT text := regexp_replace(p_text, '([A-Za-z0-9+/_-]{40})[ \t\r\n]+(?=[A-Za-z0-9+/_-])', '\1' || chr(10),
    'g');
  v_text text := v_given;
  v_code text;
  v_bytes bytea;
  v_plain text;
  v_masked text;
  v_has_secret boolean;
BEGIN
  FOR v_code IN SELECT f.code FROM (SELECT DISTINCT COALESCE(m[1], m[2]) AS code
      FROM regexp_matches(v_given, public.fn_mask_codes(), 'g') m) f
    ORDER BY length(f.code) DESC -- a shorter one may be the beginning of a longer one
  LOOP
    BEGIN
      IF v_code ~ '^[0-9A-Fa-f]{2}(?:[\s:,-]|0[Xx])' THEN
        v_bytes := decode(regexp_replace(v_code, '0[Xx]|[^0-9A-Fa-f]', '', 'g'), 'hex');
      ELSIF v_code ~ '^[0-9A-Fa-f]+$' THEN
        v_bytes := decode(left(v_code, length(v_code) / 2 * 2), 'hex');
      ELSE
        v_plain := regexp_replace(translate(v_code, '-_', '+/'), '[=\s]', '', 'g');
        v_plain := left(v_plain, length(v_plain) - CASE length(v_plain) % 4 WHEN 1 THEN 1 ELSE 0 END);
        v_bytes := decode(rpad(v_plain, (length(v_plain) + 3) / 4 * 4, '='), 'base64');
      END IF;
      BEGIN
        v_plain := convert_from(v_bytes, 'UTF8');
      EXCEPTION WHEN OTHERS THEN
        -- UTF-16, JSON that was cut within a character, or other text follows the code: the ASCII characters are enough
        v_plain := convert_from(decode(regexp_replace(regexp_replace(encode(v_bytes, 'hex'), '(..)', '\1 ', 'g'),
          '(?:00|[89a-f].) ', '', 'g'), 'hex'), 'UTF8');
      END;
      v_masked := public.fn_mask_text(v_plain, p_depth + 16);
      BEGIN
        v_has_secret := v_masked::jsonb <> v_plain::jsonb;
      EXCEPTION WHEN OTHERS THEN
        v_has_secret := v_masked <> v_plain; -- truncated JSON
      END;
      IF v_has_secret THEN
        v_text := replace(v_text, v_code, '•••');
      END IF;
    EXCEPTION WHEN OTHERS THEN
      v_text := replace(v_text, v_code, '•••'); -- in doubt
    END;
  END LOOP;
  RETURN CASE WHEN v_text = v_given THEN p_text ELSE v_text END;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_coded IS 'A text with base64 or hex JSON masked that holds a secret. Internal.';

-- fn_mask_text(text, depth) → the text with its secrets masked; JSON is masked as JSON. If a secret is found only after
-- decoding escapes or replacing look-alike characters, the result is the decoded or replaced text. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_text(p_text text, p_depth int DEFAULT 0) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  v_text text := p_text;
  v_other text;
  v_masked text;
  v_lines text;
BEGIN
  IF NOT public.fn_mask_maybe(v_text) THEN
    RETURN v_text;
  END IF;
  IF p_depth > 64 THEN
    RETURN '[masked: nested too deep]';
  END IF;
  IF v_text ~ '^\s*[\[{"]' THEN
    BEGIN
      RETURN public.fn_mask_json(v_text::jsonb, p_depth + 1)::text;
    EXCEPTION WHEN OTHERS THEN
      NULL; -- not JSON, or JSON that jsonb cannot hold
    END;
  END IF;
  IF length(v_text) > 100000 THEN -- text full of possible secrets would take about a second
    RETURN format('[masked: a text of %s characters that may hold secrets]', length(v_text));
  END IF;
  IF v_text ~ public.fn_mask_codes() THEN
    v_text := public.fn_mask_coded(v_text, p_depth);
  END IF;
  v_other := public.fn_mask_terminal(v_text);
  IF v_other <> v_text AND public.fn_mask_accounts(public.fn_mask_words(v_other)) <> v_other THEN
    v_text := v_other;
  END IF;
  IF v_text ~ '\\[nrt](?:[A-Za-z]{2}[0-9]{2}|[A-Za-z]{2,9}["'']?\s*[:=])' THEN
    -- the line ends of truncated JSON: a name or a number may begin after them
    v_lines := regexp_replace(v_text, '\\+[nrt]', chr(10), 'g');
    v_lines := public.fn_mask_accounts(public.fn_mask_words(v_lines));
  END IF;
  v_text := public.fn_mask_accounts(public.fn_mask_words(v_text));
  IF length(v_lines) - length(replace(v_lines, '•••', '')) > length(v_text) - length(replace(v_text, '•••', '')) THEN
    v_text := v_lines;
  END IF;
  IF v_text ~ '[^\t\n\r -~]' THEN
    v_other := regexp_replace(public.fn_mask_fold(v_text),
      '[\u0001-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\ufffd]', '', 'g');
    v_masked := public.fn_mask_accounts(public.fn_mask_words(v_other));
    IF v_masked <> v_other THEN
      v_text := v_masked;
    END IF;
  END IF;
  IF v_text ~ '[%\\&]' THEN
    v_other := public.fn_mask_decode(v_text);
    IF v_other <> v_text THEN
      v_masked := public.fn_mask_text(v_other, p_depth + 16);
      IF v_masked <> v_other THEN
        v_text := v_masked;
      END IF;
    END IF;
  END IF;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_text IS 'A text with its secrets masked. Internal.';

-- fn_mask_json(value, depth) → the value with its secrets masked: members with the name of a secret, the value of
-- {name, value} pairs, the element after such a name in a list, and secrets inside strings. null, true and false reveal
-- nothing and are kept, and so are numbers whose name shows that they are counts or measures. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_json(p_value jsonb, p_depth int DEFAULT 0) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_dots CONSTANT jsonb := '"•••"'::jsonb;
  c_telling CONSTANT text[] := ARRAY['name', 'key', 'field', 'header', 'param', 'parameter', 'label', 'property',
    'attribute', 'variable', 'id', 'k', 'n', 'type', 'kind'];
  -- beside one of these, only the value is masked: a column has other members too
  c_beside CONSTANT text[] := ARRAY['column', 'option', 'setting', 'attr', 'prop', 'var', 'env', 'fieldname',
    'fieldkey', 'headername', 'headerkey', 'paramname', 'paramkey', 'parametername', 'parameterkey', 'optionname',
    'optionkey', 'settingname', 'settingkey', 'attrname', 'attributename', 'attributekey', 'propname', 'propertyname',
    'propertykey', 'varname', 'variablename', 'variablekey', 'envname', 'envkey', 'columnname', 'configname',
    'configkey', 'cookiename'];
  c_counts CONSTANT text := '(?<![a-z])(?:count|num|total|size|length|len|limit|max|min|ttl|timeout|age|index'
    '|version|used|remaining|attempts'
    '|seconds|ms|prompt|completion|input|output)s?(?![a-z])|expir';
  -- a number under one of these names is the secret itself, unless the name says that it is a count or a length
  c_number CONSTANT text := '(?<![a-z])(?:card|cvv|cvc|pin|otp|ssn|iban|pass[a-z]*)(?![a-z])';
  c_of CONSTANT text := '(?<![a-z])(?:count|total|size|length|len|limit|ttl|timeout|age|attempts|remaining|used'
    '|seconds)s?(?![a-z])|expir';
  c_changed CONSTANT text := '(?:^|[^a-z])(?:old|new|before|after|prev(?:ious)?|current)(?:[^a-z]|$)'; -- not holder
  v_pair boolean;
  v_beside boolean;
  v_jwk boolean;
BEGIN
  IF p_depth > 64 THEN
    RETURN '"[masked: nested too deep]"'::jsonb;
  END IF;
  IF p_depth = 0 AND NOT public.fn_mask_maybe(p_value::text) THEN
    RETURN p_value;
  END IF;
  CASE jsonb_typeof(p_value)
    WHEN 'object' THEN
      v_pair := EXISTS (SELECT 1 FROM jsonb_each(p_value) e WHERE jsonb_typeof(e.value) = 'string'
        AND length(e.key) < 10
        AND lower(e.key COLLATE "C") = ANY (c_telling) AND length(e.value #>> '{}') <= 100
          AND public.fn_mask_named(e.value #>> '{}'));
      v_beside := EXISTS (SELECT 1 FROM jsonb_each(p_value) e WHERE jsonb_typeof(e.value) = 'string'
        AND length(e.key) BETWEEN 3 AND 15 AND length(e.value #>> '{}') <= 100
        AND CASE WHEN e.key = 'path' THEN jsonb_typeof(p_value -> 'op') = 'string' -- a JSON patch
            AND (e.value #>> '{}' ~* 'passw|credential|secrets?(?:/|$)'
              OR public.fn_mask_named(substring(e.value #>> '{}' FROM '([^/]*)(?:/(?:[0-9]+|-))*$')))
          ELSE lower(translate(e.key, '_-', '') COLLATE "C") = ANY (c_beside)
            AND public.fn_mask_named(e.value #>> '{}') END);
      v_jwk := COALESCE(jsonb_typeof(p_value -> 'kty') = 'string', false); -- a key, as RFC 7517 writes it
      RETURN (SELECT COALESCE(jsonb_object_agg(
        CASE WHEN (e.key ~ '[^A-Za-z_-]' OR length(e.key) > 12) AND public.fn_mask_maybe(e.key)
          THEN public.fn_mask_text(e.key, p_depth + 1) ELSE e.key END,
        CASE
          WHEN jsonb_typeof(e.value) IN ('null', 'boolean') OR e.value IN ('""', '[]', '{}') THEN e.value
          WHEN v_pair AND (e.key ~* 'val|content|data|text|default|raw|string'
            OR regexp_replace(e.key, '([a-z0-9])([A-Z])', '\1_\2', 'g') COLLATE "C" ~* c_changed
            OR e.key IN ('v', 'V', 'from', 'to')) THEN c_dots
          WHEN v_beside AND (e.key ~* 'val' OR e.key IN ('from', 'to')
            OR regexp_replace(e.key, '([a-z0-9])([A-Z])', '\1_\2', 'g') COLLATE "C" ~* c_changed) THEN c_dots
          WHEN v_jwk AND e.key IN ('d', 'p', 'q', 'dp', 'dq', 'qi', 'k', 'oth') THEN c_dots
          WHEN NOT public.fn_mask_maybe(e.key || ' ' || e.value::text) THEN e.value
          WHEN public.fn_mask_named(e.key) AND NOT (jsonb_typeof(e.value) = 'number'
            AND regexp_replace(e.key, '([a-z0-9])([A-Z])', '\1_\2', 'g') ~* c_counts
            AND NOT (regexp_replace(e.key, '([a-z0-9])([A-Z])', '\1_\2', 'g') ~* c_number
              AND regexp_replace(e.key, '([a-z0-9])([A-Z])', '\1_\2', 'g') !~* c_of)) THEN c_dots
          WHEN jsonb_typeof(e.value) = 'number' AND public.fn_mask_card(trim_scale(abs(e.value::numeric))::text)
            THEN c_dots
          WHEN jsonb_typeof(e.value) = 'number' THEN e.value
          ELSE public.fn_mask_json(e.value, p_depth + 1) END), '{}') FROM jsonb_each(p_value) e);
    WHEN 'array' THEN
      p_value := public.fn_mask_split_list(p_value);
      IF EXISTS (SELECT 1 FROM jsonb_array_elements(p_value) e WHERE jsonb_typeof(e) = 'string'
        AND e #>> '{}' ~* '--[\s+]*(?:BEGIN|END)[A-Z0-9\s_+]*PRIVATE[\s_+]+KEY') THEN
        RETURN jsonb_build_array(c_dots); -- a private key as a list of lines
      END IF;
      RETURN (SELECT COALESCE(jsonb_agg(CASE
          WHEN jsonb_typeof(x.value) IN ('null', 'boolean') THEN x.value
          WHEN x.named THEN c_dots
          WHEN jsonb_typeof(x.value) = 'number' AND public.fn_mask_card(trim_scale(abs(x.value::numeric))::text)
            THEN c_dots
          WHEN jsonb_typeof(x.value) = 'number' OR NOT public.fn_mask_maybe(x.value::text) THEN x.value
          ELSE public.fn_mask_json(x.value, p_depth + 1) END ORDER BY x.n), '[]')
        FROM (SELECT e.value, e.n, lag(CASE WHEN jsonb_typeof(e.value) = 'string' AND length(e.value #>> '{}') <= 60
            THEN public.fn_mask_named(e.value #>> '{}') ELSE false END) OVER (ORDER BY e.n) AS named
          FROM jsonb_array_elements(p_value) WITH ORDINALITY e (value, n)) x);
    WHEN 'string' THEN
      RETURN to_jsonb(public.fn_mask_text(p_value #>> '{}', p_depth));
    WHEN 'number' THEN
      RETURN CASE WHEN public.fn_mask_card(trim_scale(abs(p_value::numeric))::text) THEN c_dots ELSE p_value END;
    ELSE
      RETURN p_value;
  END CASE;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_json IS 'A payload with its secrets masked. Internal.';

-- fn_mask_said(text) → the message of a program with its secrets masked, also the tokens in the paths of URLs, which
-- receivers such as chats have there, and in the values of their queries: parts of at least 20 characters with a piece
-- of at least 9 that is neither a word nor a number, but no UUIDs. Never raises, because the result of a job must be
-- recorded whatever its message contains. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_said(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  c_path CONSTANT text := '(?::\\?/\\?/[^\s"''<>/\\]+|/[A-Za-z]*[Hh]ooks?[a-z0-9]*)(\\?/[^\s"''<>?#]*)';
  c_query CONSTANT text := '/[^\s"''<>?]*[?]([A-Za-z0-9_.\[\]%-]+=[^\s"''<>]*)';
  c_word CONSTANT text := '^(?:[0-9]+|[A-Z]{1,16}|[A-Z]?[a-z]{1,20}(?:[A-Z][a-z]{1,16})*)[0-9]{0,4}$';
  c_uuid CONSTANT text := '^[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$';
  v_text text;
  v_part text;
BEGIN
  v_text := public.fn_mask_text(p_text, 0);
  IF v_text ~ '/[^\s/]{20}' AND (v_text ~ c_path OR strpos(v_text, '?') > 0) THEN
    FOR v_part IN SELECT f.part FROM (
        SELECT p.part, p.part AS words FROM regexp_matches(v_text, c_path, 'g') m,
          regexp_split_to_table(m[1], '[/\\,;)]+|[.:!]+$') p (part)
        UNION SELECT p.part, regexp_replace(p.part, '%[0-9A-Fa-f]{2}', ' ', 'g')
        FROM regexp_matches(v_text, c_query, 'g') m, regexp_split_to_table(m[1], '[&=/\\,;#)]+|[.:!]+$') p (part)) f
      WHERE length(f.part) >= 20 AND f.part !~ c_uuid AND EXISTS (
        SELECT FROM regexp_split_to_table(f.words, '[^A-Za-z0-9]+') w (word)
        WHERE length(w.word) >= 9 AND w.word !~ c_word)
      ORDER BY length(f.part) DESC -- a shorter one may lie within a longer one
    LOOP
      v_text := replace(v_text, v_part, '•••');
    END LOOP;
  END IF;
  RETURN v_text;
EXCEPTION WHEN OTHERS THEN
  RETURN '[masked: it could not be searched for secrets]';
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_said IS
  'The message of a program, with its secrets masked. Internal.';

-- fn_mask_url(url) → the URL without credentials, query and fragment. In its path, parts that are not plain words are
-- masked, because receivers such as chats have their token there, and so is everything else that looks like a secret. A
-- text that is not a URL is masked as text. Never raises. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_url(p_url text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS $fn$
DECLARE
  -- words of letters, joined by . _ or - or as in orderCreated, with an optional short number at the end: orders.v2
  c_plain CONSTANT text := '^(?:(?:[A-Z]?[a-z]{1,16}|[A-Z]{1,8})(?:[._-](?:[A-Z]?[a-z]{1,16}|[A-Z]{1,8})'
    '|[A-Z][a-z]{2,16}){0,4}[._-]?v?)?[0-9]{0,3}$';
  v_rest text := substring(p_url FROM '://(.*)$');
  v_host text := substring(v_rest FROM '^[^/?#]*');
  v_url text := p_url;
BEGIN
  IF v_host ~ '@' THEN
    v_rest := regexp_replace(v_rest, '^[^/?#]*@', '•••@');
  ELSIF v_host ~ ':' AND v_host !~ '^[^:]*:[0-9]*$' AND v_rest ~ '@' THEN -- not a port: a password that holds / ? or #
    v_rest := regexp_replace(v_rest, '^.*@', '•••@');
  END IF;
  IF v_rest IS NOT NULL THEN
    v_rest := regexp_replace(v_rest, '([?#]).*$', '\1•••');
    v_rest := substring(v_rest FROM '^[^/?#]*') || COALESCE((
        SELECT string_agg(CASE WHEN p.part ~ c_plain OR p.part IN ('', '•••') THEN p.part ELSE '•••' END, '/'
          ORDER BY p.n)
        FROM regexp_split_to_table(substring(v_rest FROM '^[^/?#]*([^?#]*)'), '/') WITH ORDINALITY p (part, n)), '')
      || COALESCE(substring(v_rest FROM '[?#].*$'), '');
    v_url := substring(p_url FROM '^.*?://') || v_rest;
  END IF;
  RETURN public.fn_mask_said(regexp_replace(v_url, '([?#]).*$', '\1•••'));
EXCEPTION WHEN OTHERS THEN
  RETURN '[masked: it could not be searched for secrets]';
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_url IS
  'A URL without credentials, query, fragment, and with those parts of its path masked that are not words. Internal.';
