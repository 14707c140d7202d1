-- What masks secrets in text and JSON that somebody else wrote.

-- Secrets in foreign text. One set of rules for payloads and for what programs
-- say (last_error, response_excerpt): over-masking is the safe side.
-- fn_mask_names(left) → the regular expression, whatever the case, of a name that
-- speaks of a secret, to its end. Short words count only where they stand alone,
-- left being what may stand before them, so that author, tokenizer, discard and
-- shipping pass. No lookaround: it would cost a hundred times the rest. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_names(p_left text DEFAULT '(?:^|[^a-z])') RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_tail CONSTANT text := '[a-z0-9_.\[\]%-]*';
BEGIN
  RETURN '(?:secret(?:[b-z0-9_.\[\]%-]' || c_tail || ')?|token(?:(?:i[^sz\s:=]|[a-hj-z0-9_.\[\]%-])' || c_tail || ')?'
    '|(?:passw|pass[^a-z0-9]?(?:phrase|code|key)|pwd|credential|authori[sz]ation|cookie|bearer|jwt|[cx]srf'
    '|signature|mnemonic|seed[^a-z0-9]?phrase|(?:recovery|backup)[^a-z0-9]?(?:code|phrase|key)|mat[^a-z0-9]?khau'
    '|(?:api|access|private|sign|signing|encrypt|encryption|master|auth|shared|ssh|gpg|pgp|hmac|account'
    '|storage)[^a-z0-9]?key'
    '|sess(?:ion)?[^a-z0-9]?(?:id|key|data)|card[^a-z0-9]?n(?:o|r|um)|(?:credit|debit)[^a-z0-9]?card)' || c_tail
    || '|' || p_left
      || '(?:auth|oauth2?|pass|private|session|sig|hmac|ssn|card|cvv2?|cvc2?|iban|pin|otp|totp|mfa'
        '|sid)s?(?:[0-9_.\[\]%-]' || c_tail || ')?)';
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_names IS
  'The names that speak of a secret, as a regular expression. Internal.';

-- fn_mask_fold(text) → the text as a reader takes it: full-width and accented
-- letters and look-alikes as ASCII, without what has no width. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_fold(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  IF getdatabaseencoding() <> 'UTF8' THEN
    RETURN p_text; -- normalize() knows UTF-8 alone
  END IF;
  RETURN translate(regexp_replace(normalize(p_text, NFKD),
    '[\u00ad\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f'
    '\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]', '', 'g'),
    'аеорсухіѕјкмтвнԁһոʋѵԝɡıοαενρτυικαςσАЕОРСУХІЅЈКМТВНΑΕΟΡΤΥΙΚΜΝΒΗΧ',
      'aeopcyxisjkmtbhdhnvvwgioaevptuikacsAEOPCYXISJKMTBHAEOPTYIKMNBHX');
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_fold IS
  'A text with look-alike letters as ASCII, without what has no width. Internal.';

-- fn_mask_decode(text) → the text with percent, JSON and HTML escapes of ASCII
-- taken back once. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_decode(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_text text := p_text;
  v_hex text;
  v_char text;
BEGIN
  -- what escapes the escapes comes last
  FOR v_hex IN SELECT h FROM (SELECT to_hex(i) AS h FROM generate_series(32, 126) i) x
    WHERE strpos(lower(p_text), '%' || h) > 0 ORDER BY h = '25' LOOP
    v_char := chr(('x' || v_hex)::bit(8)::int);
    v_text := replace(replace(v_text, '%' || v_hex, v_char), '%' || upper(v_hex), v_char);
  END LOOP;
  IF strpos(v_text, '\u00') > 0 OR strpos(v_text, '\x') > 0 THEN
    FOR v_hex IN SELECT h FROM (SELECT to_hex(i) AS h FROM generate_series(32, 126) i) x ORDER BY h = '5c' LOOP
      v_char := chr(('x' || v_hex)::bit(8)::int);
      v_text := replace(replace(v_text, '\u00' || v_hex, v_char), '\x' || v_hex, v_char);
      v_text := replace(replace(v_text, '\u00' || upper(v_hex), v_char), '\x' || upper(v_hex), v_char);
    END LOOP;
  END IF;
  IF v_text ~ '&(?:quot|apos|lt|gt|amp|#)' THEN
    v_text := regexp_replace(regexp_replace(v_text, '&(?:quot|#34|#x22);', '"', 'gi'), '&(?:apos|#39|#x27);', '''',
      'gi');
    v_text := replace(replace(replace(v_text, '&lt;', '<'), '&gt;', '>'), '&amp;', '&');
  END IF;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_decode IS
  'A text with its percent, JSON and HTML escapes taken back once. Internal.';

-- fn_mask_codes() → the regular expression of what may be JSON in base64 or hex, also twice: what JSON begins with, in
-- that form, and more of the same. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_codes() RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN '(?:^|[^A-Za-z0-9+/]|[\\0]x)('
      '(?:e[wy]|W[13lwyz]|ZX|V[3jnz])[A-Za-z0-9+/_-]{14,}(?:\r?\n[A-Za-z0-9+/_-]+)*={0,2}'
    '|N[02UW]I[A-Za-z0-9+/_-]{14,}={0,2}'
    '|(?:7[Bb](?:2[02]|0[AaDd9])|5[Bb](?:7[Bb]|2[02]|5[Bb]|0[AaDd9])|65(?:79|77)|57(?:3[13]|6[Cc]|7[79Aa])|3[57][46]2)'
      '(?:[0-9A-Fa-f]{2}){6,})';
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_codes IS
  'What may be JSON in base64 or hex, as a regular expression. Internal.';

-- fn_mask_digits() → the regular expression of what may be a card number or an IBAN. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_digits() RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN '(?:^|[^0-9.])([2-6](?:[ -]?[0-9]){12,18})(?:$|[^0-9])'
    '|(?:^|[^A-Za-z0-9])([A-Za-z]{2}[0-9]{2}(?:[A-Za-z0-9]{11,30}'
      '|(?:[ -][A-Za-z0-9]{4}){2,7}(?:[ -][A-Za-z0-9]{1,3})?))(?:$|[^A-Za-z0-9])';
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_digits IS
  'What may be a card number or an IBAN, as a regular expression. Internal.';

-- fn_mask_card(digits) → whether they are a card number: the length and the first digits of one, and Luhn's sum.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_card(p_digits text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_sum int := 0;
  v_digit int;
  v_len int := length(p_digits);
BEGIN
  IF p_digits !~ ('^(?:4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})|5[1-5][0-9]{14}'
    '|2(?:22[1-9]|2[3-9][0-9]|[3-6][0-9]{2}|7[01][0-9]|720)[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}'
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
COMMENT ON FUNCTION public.fn_mask_card IS 'Whether digits are a card number, by Luhn''s sum. Internal.';

-- fn_mask_iban(text) → whether it is an IBAN, without its spaces: a country that has them, and the sum of mod 97.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_iban(p_text text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_turned text := upper(substr(p_text, 5) || left(p_text, 4));
  v_digits text := '';
  v_char text;
BEGIN
  IF upper(p_text) !~ ('^(?:A[DELOTZ]|B[AEFGHIJRY]|C[FGHIMRVYZ]|D[EJKOZ]|E[EGS]|F[IKOR]|G[ABEILQRTW]|H[NRU]|I[ELQRST]'
    '|JO|K[MWZ]|L[BCITUVY]|M[ACDEKLNRTUZ]|N[EILO]|OM|P[KLST]|QA|R[OSU]|S[ACDEIKMNOTV]|T[GLNR]|UA|V[AG]|XK|YE)'
    '[0-9]{2}[A-Z0-9]{11,30}$') THEN
    RETURN false;
  END IF;
  FOREACH v_char IN ARRAY regexp_split_to_array(v_turned, '') LOOP
    v_digits := v_digits || CASE WHEN v_char BETWEEN '0' AND '9' THEN v_char ELSE (ascii(v_char) - 55)::text END;
  END LOOP;
  RETURN v_digits::numeric % 97 = 1;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_iban IS 'Whether a text is an IBAN, by its checksum. Internal.';

-- fn_mask_accounts(text) → the text with card numbers and IBANs masked, told from other numbers by their checksums.
-- Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_accounts(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_text text := p_text;
  v_found text[];
  v_part text;
BEGIN
  FOR v_found IN SELECT DISTINCT m FROM regexp_matches(p_text, public.fn_mask_digits(), 'g') m LOOP
    IF v_found[1] IS NOT NULL THEN
      IF public.fn_mask_card(regexp_replace(v_found[1], '[ -]', '', 'g')) THEN
        v_text := replace(v_text, v_found[1], '•••');
      END IF;
      CONTINUE;
    END IF;
    v_part := v_found[2]; -- in groups, it may go on with words of four letters
    WHILE length(v_part) > 14 LOOP
      IF public.fn_mask_iban(regexp_replace(v_part, '[ -]', '', 'g')) THEN
        v_text := replace(v_text, v_part, '•••');
        EXIT;
      END IF;
      EXIT WHEN v_part !~ '[ -]';
      v_part := regexp_replace(v_part, '[ -][A-Za-z0-9]+$', '');
    END LOOP;
  END LOOP;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_accounts IS 'A text with its card numbers and IBANs masked. Internal.';

-- fn_mask_maybe(text) → false: nothing in the text, also when it is JSON, can be a
-- secret. Most of a payload is told so at once; true says nothing. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_maybe(p_text text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_shapes CONSTANT text := 'eyJ|A[KS]IA|k_(?:live|test)_|whsec|gh[a-z]_|github_pat|gl[a-z]+-|xox|xapp|AIza|sk-|SG\.'
    '|npm_|ya29|shp[a-z]+_|dop_v1|AGE-SEC'
    '|://[^\s"]*@|slack\.com|[Bb][Aa][Ss][Ii][Cc] |[Dd][Ii][Gg][Ee][Ss][Tt] |PRIVATE KEY'
    '|(?:^|[^a-z])(?:auth|oauth2?|pass|private|session|sig|hmac|ssn|card|cvv2?|cvc2?|iban|pin|otp|totp|mfa'
    '|sid)s?(?:$|[^a-z])'
    '|(?:Auth|Oauth2?|OAuth2?|Pass|Private|Session|Sig|Hmac|Ssn|Card|Cvv2?|Cvc2?|Iban|Pin|Otp|Totp|Mfa|Sid)s?(?:$'
    '|[^a-z])'
    '|AUTH|PASS|PRIVATE|SESSION|SIG|HMAC|SSN|CARD|CV[VC]|IBAN|PIN|OTP|MFA|SID';
  v_text text := p_text;
  v_next text;
BEGIN
  IF v_text ~ public.fn_mask_codes() THEN -- before its \x is taken for an escape
    RETURN true;
  END IF;
  IF v_text ~ '[^ -~]' THEN
    v_text := regexp_replace(public.fn_mask_fold(v_text), '[\u0001-\u001f\u007f-\u009f]', '', 'g');
  END IF;
  IF v_text ~ '[%\\&]' THEN
    FOR v_round IN 1..4 LOOP
      v_next := public.fn_mask_decode(v_text);
      WHILE strpos(v_next, '\\') > 0 LOOP
        v_next := replace(v_next, '\\', '\');
      END LOOP;
      EXIT WHEN v_next = v_text;
      v_text := v_next;
    END LOOP;
    IF v_text ~* '\\u[0-9a-f]{4}' THEN -- a letter beyond ASCII, as JSON writes it: fn_mask_fold has not seen it
      RETURN true;
    END IF;
    v_text := replace(v_text, '\', '');
  END IF;
  RETURN v_text ~ c_shapes OR v_text ~ public.fn_mask_digits() OR v_text <> p_text AND v_text ~ public.fn_mask_codes()
    OR v_text ~* public.fn_mask_names('[0-9]');
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_maybe IS 'Whether a text may hold a secret. Internal.';

-- fn_mask_named(name) → whether the name speaks of a secret, however it is
-- cased, escaped or disguised. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_named(p_name text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_name text := p_name;
BEGIN
  IF v_name ~ '[^ -~]' THEN
    v_name := regexp_replace(public.fn_mask_fold(v_name), '[\u0001-\u001f\u007f-\u009f]', '', 'g');
  END IF;
  IF v_name ~ '[%\\&]' THEN
    v_name := public.fn_mask_decode(v_name);
  END IF;
  v_name := regexp_replace(v_name, '([a-z0-9])([A-Z])', '\1_\2', 'g');
  RETURN regexp_replace(v_name, '[^A-Za-z0-9]+', '_', 'g') || '='
    ~* (public.fn_mask_names('(?:^|[^a-z])'::text) || '=');
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_named IS 'Whether a name speaks of a secret. Internal.';

-- fn_mask_words(text) → the text with what looks like a secret masked: keys in
-- the forms that vendors give them, authorisation schemes, secrets in URLs, and
-- the value behind a name in forms, headers, XML, command lines and JSON that was
-- cut. A masked text passes unchanged. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_words(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_shape CONSTANT text := '(^|[^A-Za-z0-9])(?:eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+|A[KS]IA[A-Z0-9]{12,}'
    '|[sr]k_(?:live|test)_[A-Za-z0-9]{6,}'
    '|whsec_[A-Za-z0-9+/=_-]{6,}|gh[a-z]_[A-Za-z0-9]{10,}|github_pat_[A-Za-z0-9_]{10,}|gl[a-z]{2,4}-[A-Za-z0-9_-]{16,}'
    '|xox[a-z]-[A-Za-z0-9-]{6,}|xapp-[A-Za-z0-9-]{6,}|AIza[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9_-]{16,}'
    '|SG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}'
    '|npm_[A-Za-z0-9]{20,}|ya29\.[A-Za-z0-9_-]{10,}|shp[a-z]{2}_[A-Za-z0-9]{10,}|dop_v1_[a-f0-9]{20,}'
    '|AGE-SECRET-KEY-1[A-Z0-9]{10,})';
  -- a value: a quoted one to the quote that ends it, also where quotes are escaped;
  -- a list or an object to its end; else to what parts values
  c_value CONSTANT text := '(?:"(?:[^"\\]|\\.)*(?:"|$)|\\+"(?:[^"]|"+\s*[^\s,}\])&;"\\])*(?:"|$)|''(?:[^''\\]'
    '|\\.)*(?:''|$)'
    '|\[[^\]]*(?:\]|$)|\{[^}]*(?:\}|$)|[^&;,\s"''](?:[^&;,\s"'']|,[^&;,\s"''])*)';
  v_text text := p_text;
BEGIN
  v_text := regexp_replace(v_text, c_shape, '\1•••', 'g');
  IF v_text ~ 'PRIVATE KEY' THEN
    v_text := regexp_replace(v_text, '-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY.*?(?:-----END[A-Z0-9 ]*-----|$)', '•••',
      'g');
  END IF;
  IF v_text ~ '://[^\s]*@' THEN
    -- user:password@, where the password may itself hold / and @; a port is none
    v_text := regexp_replace(v_text,
      '(://[^/@:\s]*:)(?:[^@\s"<>0-9][^@\s"<>]*|\d+[^@\s"<>0-9/?#][^@\s"<>]*|\d*)@(?:[^@\s"<>]*@)*', '\1•••@', 'g');
    v_text := regexp_replace(v_text, '(://)[^/@:\s"<>]+@', '\1•••@', 'g');
  END IF;
  IF v_text ~* 'hooks\.slack\.com/|basic|digest' THEN
    v_text := regexp_replace(v_text, '(hooks\.slack\.com/(?:services|workflows|triggers)/)[a-z0-9/_-]+', '\1•••', 'gi');
    v_text := regexp_replace(v_text,
      '(\m(?:[Bb][Aa][Ss][Ii][Cc]|[Dd][Ii][Gg][Ee][Ss][Tt])\s+)[A-Za-z0-9+/_-]+[A-Z0-9=+/][A-Za-z0-9+/=_-]{4,}',
      '\1•••', 'g');
  END IF;
  IF v_text !~* public.fn_mask_names('(?:^|[^a-z])'::text) THEN
    RETURN v_text;
  END IF;
  v_text := regexp_replace(v_text, '(\m(?:bearer|apikey)\s+)[A-Za-z0-9._~+/=-]{6,}', '\1•••', 'gi');
  v_text := regexp_replace(v_text, '((?:authori[sz]ation|cookie)["'']?\s*:\s*)[^"''\\\s][^\r\n]*', '\1•••', 'gi');
  v_text := regexp_replace(v_text, '((?:passphrase|mnemonic|seed phrase)\s*[:=]\s*)[^"''\\\s][^\r\n&;,]*', '\1•••',
    'gi');
  IF v_text ~ '<' THEN -- <password kind="x">…</password>
    v_text := regexp_replace(v_text, '(<[a-z0-9_:.-]*' || public.fn_mask_names('')
      || '(?:\s[^<>]*)?>)\s*(?:<!\[CDATA\[[^\]]*\]\]>|[^<]+)', '\1•••', 'gi');
  END IF;
  IF v_text ~ '--' THEN -- --password …
    v_text := regexp_replace(v_text, '(--[a-z0-9-]*' || public.fn_mask_names('')
      || '\s+)[^\s"''-][^\s"'']*', '\1•••', 'gi');
  END IF;
  IF v_text ~ 'name' THEN -- a part of a multipart form; "name": "password", "value": … where it was cut
    v_text := regexp_replace(v_text, '(name=\\*"[^"]*' || public.fn_mask_names('')
      || '"\s*\n\s*)[^\s][^\r\n]*', '\1•••', 'gi');
    v_text := regexp_replace(v_text, '("(?:name|key|field|header|param)\\*"\s*:\s*\\*"[^"]*' || public.fn_mask_names('')
      || '\\*"\s*,\s*\\*"[a-z_]*val[a-z_]*\\*"\s*:\s*)' || c_value, '\1•••', 'gi');
  END IF;
  -- name=…, name: …, name => …
  RETURN regexp_replace(v_text, '(' || public.fn_mask_names('(?:^|[^a-z])'::text) || '\\*["'']?\]?\s*[:=]{1,2}>?\s*)'
    || c_value, '\1•••', 'gi');
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_words IS
  'A text with what looks like a secret masked. Internal.';

-- fn_mask_coded(text, depth) → the text with every piece masked that is JSON in base64 or hex and holds a secret, also
-- where that JSON was cut. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_coded(p_text text, p_depth int) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_text text := p_text;
  v_code text;
  v_plain text;
  v_masked text;
  v_hides boolean;
BEGIN
  FOR v_code IN SELECT DISTINCT m[1] FROM regexp_matches(p_text, public.fn_mask_codes(), 'g') m LOOP
    BEGIN
      IF v_code ~ '^[0-9A-Fa-f]+$' AND v_code ~ '^[3567]' THEN
        v_plain := convert_from(decode(left(v_code, length(v_code) / 2 * 2), 'hex'), 'UTF8');
      ELSE
        v_plain := regexp_replace(translate(v_code, '-_', '+/'), '[=\s]', '', 'g');
        v_plain := left(v_plain, length(v_plain) - CASE length(v_plain) % 4 WHEN 1 THEN 1 ELSE 0 END);
        v_plain := convert_from(decode(rpad(v_plain, (length(v_plain) + 3) / 4 * 4, '='), 'base64'), 'UTF8');
      END IF;
      v_masked := public.fn_mask_text(v_plain, p_depth + 16);
      BEGIN
        v_hides := v_masked::jsonb <> v_plain::jsonb;
      EXCEPTION WHEN OTHERS THEN
        v_hides := v_masked <> v_plain; -- JSON that was cut
      END;
      IF v_hides THEN
        v_text := replace(v_text, v_code, '•••');
      END IF;
    EXCEPTION WHEN OTHERS THEN
      NULL; -- not a code of text after all
    END;
  END LOOP;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_coded IS 'A text with JSON in base64 or hex masked that holds a secret. Internal.';

-- fn_mask_text(text, depth) → the text with its secrets masked; one that is JSON
-- is masked as such. What only shows once escapes are taken back, or disguised
-- letters read as meant, makes the text come back in that form. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_text(p_text text, p_depth int DEFAULT 0) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  v_text text := p_text;
  v_other text;
  v_masked text;
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
      NULL; -- not JSON after all, or JSON that jsonb does not take
    END;
  END IF;
  IF length(v_text) > 100000 THEN -- one second of work where it is full of them
    RETURN format('[masked: a text of %s characters that may hold secrets]', length(v_text));
  END IF;
  IF v_text ~ public.fn_mask_codes() THEN
    v_text := public.fn_mask_coded(v_text, p_depth);
  END IF;
  v_text := public.fn_mask_accounts(public.fn_mask_words(v_text));
  IF v_text ~ '[^\u0001-\u007f]' THEN
    v_other := public.fn_mask_fold(v_text);
    v_masked := public.fn_mask_accounts(public.fn_mask_words(v_other));
    IF v_masked <> v_other THEN
      v_text := v_masked;
    END IF;
  END IF;
  IF v_text ~ '%[2-7][0-9A-Fa-f]|\\(?:u00|x)[2-7]|&(?:quot|apos|lt|#)' THEN
    v_other := public.fn_mask_decode(v_text);
    v_masked := public.fn_mask_text(v_other, p_depth + 16);
    IF v_masked <> v_other THEN
      v_text := v_masked;
    END IF;
  END IF;
  RETURN v_text;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_text IS 'A text with its secrets masked. Internal.';

-- fn_mask_json(value, depth) → the value with its secrets masked: members whose
-- name speaks of one, the value of {name, value} pairs, the element behind a name
-- in a list, and all strings as texts. null, true and false tell nothing and stay;
-- so do numbers whose name says that they count or measure. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_json(p_value jsonb, p_depth int DEFAULT 0) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  c_dots CONSTANT jsonb := '"•••"'::jsonb;
  c_telling CONSTANT text[] := ARRAY['name', 'key', 'field', 'header', 'param', 'parameter', 'label', 'property',
    'attribute', 'variable', 'id', 'k', 'n', 'type', 'kind'];
  c_counts CONSTANT text := '(?<![a-z])(?:count|num|total|size|length|len|limit|max|min|ttl|timeout|age|index'
    '|version|used|remaining|attempts'
    '|seconds|ms|prompt|completion|input|output)s?(?![a-z])|expir';
  -- a number under these is the secret itself, whatever else the name says, unless it counts them or tells their length
  c_number CONSTANT text := '(?<![a-z])(?:card|cvv|cvc|pin|otp|ssn|iban|pass[a-z]*)(?![a-z])';
  c_of CONSTANT text := '(?<![a-z])(?:count|total|size|length|len|limit|ttl|timeout|age|attempts|remaining|used'
    '|seconds)s?(?![a-z])|expir';
  v_pair boolean;
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
        AND lower(e.key) = ANY (c_telling) AND length(e.value #>> '{}') <= 100
          AND public.fn_mask_named(e.value #>> '{}'));
      RETURN (SELECT COALESCE(jsonb_object_agg(
        CASE WHEN (e.key ~ '[^A-Za-z_-]' OR length(e.key) > 12) AND public.fn_mask_maybe(e.key)
          THEN public.fn_mask_text(e.key, p_depth + 1) ELSE e.key END,
        CASE
          WHEN jsonb_typeof(e.value) IN ('null', 'boolean') OR e.value IN ('""', '[]', '{}') THEN e.value
          WHEN v_pair AND (e.key ~* 'val|content|data|text|default|raw|string' OR e.key IN ('v', 'V')) THEN c_dots
          WHEN NOT public.fn_mask_maybe(e.key || ' ' || e.value::text) THEN e.value
          WHEN public.fn_mask_named(e.key) AND NOT (jsonb_typeof(e.value) = 'number'
            AND regexp_replace(e.key, '([a-z0-9])([A-Z])', '\1_\2', 'g') ~* c_counts
            AND NOT (regexp_replace(e.key, '([a-z0-9])([A-Z])', '\1_\2', 'g') ~* c_number
              AND regexp_replace(e.key, '([a-z0-9])([A-Z])', '\1_\2', 'g') !~* c_of)) THEN c_dots
          WHEN jsonb_typeof(e.value) = 'number' AND public.fn_mask_card(e.value::text) THEN c_dots
          WHEN jsonb_typeof(e.value) = 'number' THEN e.value
          ELSE public.fn_mask_json(e.value, p_depth + 1) END), '{}') FROM jsonb_each(p_value) e);
    WHEN 'array' THEN
      IF EXISTS (SELECT 1 FROM jsonb_array_elements(p_value) e WHERE jsonb_typeof(e) = 'string'
        AND e #>> '{}' ~ '-----BEGIN [A-Z0-9 ]*PRIVATE KEY') THEN
        RETURN jsonb_build_array(c_dots); -- the lines of a key
      END IF;
      RETURN (SELECT COALESCE(jsonb_agg(CASE
          WHEN jsonb_typeof(x.value) IN ('null', 'boolean') THEN x.value
          WHEN x.named THEN c_dots
          WHEN jsonb_typeof(x.value) = 'number' AND public.fn_mask_card(x.value::text) THEN c_dots
          WHEN jsonb_typeof(x.value) = 'number' OR NOT public.fn_mask_maybe(x.value::text) THEN x.value
          ELSE public.fn_mask_json(x.value, p_depth + 1) END ORDER BY x.n), '[]')
        FROM (SELECT e.value, e.n, lag(CASE WHEN jsonb_typeof(e.value) = 'string' AND length(e.value #>> '{}') <= 60
            THEN public.fn_mask_named(e.value #>> '{}') ELSE false END) OVER (ORDER BY e.n) AS named
          FROM jsonb_array_elements(p_value) WITH ORDINALITY e (value, n)) x);
    WHEN 'string' THEN
      RETURN to_jsonb(public.fn_mask_text(p_value #>> '{}', p_depth));
    WHEN 'number' THEN
      RETURN CASE WHEN public.fn_mask_card(p_value::text) THEN c_dots ELSE p_value END;
    ELSE
      RETURN p_value;
  END CASE;
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_json IS 'A payload with its secrets masked. Internal.';

-- fn_mask_said(text) → what a program said, with its secrets masked. Never raises:
-- a report must not fail for what it says. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_said(p_text text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
BEGIN
  RETURN public.fn_mask_text(p_text, 0);
EXCEPTION WHEN OTHERS THEN
  RETURN '[masked: it could not be searched for secrets]';
END
$fn$;
COMMENT ON FUNCTION public.fn_mask_said IS
  'What a program said, with its secrets masked. Internal.';

-- fn_mask_url(url) → the URL without credentials, query and fragment, without those parts of its path that are no plain
-- words, for receivers such as chats put their token there, and with what else looks like a secret masked. What is no
-- URL is masked as text. Never raises. Internal.
CREATE OR REPLACE FUNCTION public.fn_mask_url(p_url text) RETURNS text
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $fn$
DECLARE
  -- words in letters, joined by . _ or - or as in orderCreated, and a short number behind them, such as orders.v2
  c_plain CONSTANT text := '^(?:(?:[A-Z]?[a-z]{1,16}|[A-Z]{1,8})(?:[._-](?:[A-Z]?[a-z]{1,16}|[A-Z]{1,8})'
    '|[A-Z][a-z]{2,16}){0,4}[._-]?v?)?[0-9]{0,3}$';
  v_rest text := substring(p_url FROM '://(.*)$');
  v_host text := substring(v_rest FROM '^[^/?#]*');
  v_url text := p_url;
BEGIN
  IF v_host ~ '@' THEN
    v_rest := regexp_replace(v_rest, '^[^/?#]*@', '•••@');
  ELSIF v_host ~ ':' AND v_host !~ '^[^:]*:[0-9]*$' AND v_rest ~ '@' THEN -- no port: a password that holds / ? or #
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
  'A URL without credentials, query, fragment and what is no plain word in its path. Internal.';
